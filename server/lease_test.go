package server

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/slots"
)

// An exchange lasts for as long as a lost link is waited for, and its lease.
func TestLeaseOutlastsLink(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	s, err := Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const hold = 10 * time.Second // the default of node.link_hold
	if got := s.exchanges.lease; got != exchangeLease+hold {
		t.Errorf("the lease is %v", got)
	}
}

// A part whose bytes could not be moved because a daemon has lost what the part allows is
// one that its requester sends again; any other failure ends it.
func TestPartNotMoved(t *testing.T) {
	for err, want := range map[error]slots.Status{
		ErrLost: slots.StatusNotExported, ErrExpired: slots.StatusNotExecuted, ErrClosed: slots.StatusNotExecuted,
	} {
		r := newExchangeRig(t)
		u := slots.Run{Index: 0, Len: 1, Ticket: 1}
		r.ring.Deliver(0, 1, fuzzID, 1)
		if _, ok := r.ring.Pick(0, fuzzID); !ok {
			t.Fatal("not picked")
		}
		p := &part{x: &r.s.exchanges, ring: r.ring, run: u, header: slots.Header{Answer: 300}}
		p.notMoved(&RegionError{Op: "write", Err: err})
		var h slots.Header
		if !h.Decode(r.ring.Header(u)) || h.Status != want {
			t.Errorf("%v: %v, want %v", err, h.Status, want)
		}
	}
}
