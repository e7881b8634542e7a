package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/slots"
)

// A better fabric is tried again also if it came to be offered while the nodes shook hands: neither
// had offered it then.
func TestFailbackAfterALongHandshake(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.fabrics = append([]*fabrics.Fabric{{Name: "verbs"}}, r.fabrics...)
	for _, offered := range []bool{true, false} {
		troubled := &trouble{until: time.Now().Add(time.Hour)}
		r.link.troubles["verbs"] = troubled
		if offered {
			delete(r.link.troubles, "verbs")
		}
		mine := r.hello(r.link).Hello
		r.link.troubles["verbs"] = troubled
		troubled.until = time.Now() // by now it is offered
		h := *mine
		h.Node, h.Session, h.Fabrics = "a", 8, []string{tcp.Name}
		ours, theirs := net.Pipe()
		ch := &peerauth.Channel{Conn: ours, Raw: ours}
		s, err := newSession(r.link, ch, bufio.NewReader(ch), &h, mine, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.link.failback(s) // it returns, whatever it does
		if again := s.Reason() != nil; again == offered {
			t.Errorf("the link has offered the better fabric: %v; it is tried again: %v (%v)", offered, again, s.Reason())
		}
		s.end(errStopping)
		_ = theirs.Close()
	}
}

// Failures of the fabric have the link leave it, and nothing else that ends connections.
func TestWhatCountsAsAFailure(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.link.session = r.s
	r.fabrics = append(r.fabrics, &fabrics.Fabric{Name: "worse"})
	for _, err := range []error{
		fmt.Errorf("connection lost: %w: drained", errTold), fmt.Errorf("connection lost: %w", fabric.ErrPeerClosed),
		fmt.Errorf("answer: %w", slots.ErrProtocol), fmt.Errorf("%w: an address", peerproto.ErrFrame), errOutdated, agent.ErrRetired,
		&fabric.ConnectError{Peer: "a", Err: context.Canceled},
	} {
		for range troubleLimit {
			r.fabricFailed(r.s, err)
		}
		if r.s.Reason() != nil {
			t.Fatalf("%v: %v", err, r.s.Reason())
		}
	}
	for range troubleLimit {
		r.fabricFailed(r.s, &fabric.ConnectError{Peer: "a", Err: context.DeadlineExceeded})
	}
	if err := r.s.Reason(); !errors.Is(err, errFailover) {
		t.Errorf("the fabric keeps failing: %v", err)
	}
}
