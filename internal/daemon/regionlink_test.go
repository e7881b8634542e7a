package daemon

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/slots"
)

// A peer that does not say which regions it has loses its session, but not before it can have said
// so, however short links are waited for; who waits for that is not kept waiting by the end of one.
func TestPeerSaysNothingOfRegions(t *testing.T) {
	synctest.Test(t, testPeerSaysNothingOfRegions)
}

func testPeerSaysNothingOfRegions(t *testing.T) {
	c := &conductor{cfg: &config.Config{Node: config.Node{LinkHold: 0}}, ctx: t.Context()}
	here, there := net.Pipe()
	defer there.Close()
	s := &session{life: context.Background(), endLife: func() {}, conn: &peerauth.Channel{Conn: here, Raw: here}, resumed: make(chan struct{}), repeated: make(chan struct{}), done: make(chan struct{})}
	begin := time.Now()
	c.awaitPeerRepeated(s)
	if took := time.Since(begin); took < answerTimeout {
		t.Errorf("the session ended after %v", took)
	}
	if err := s.Reason(); !errors.Is(err, errNotRepeated) {
		t.Errorf("the session ended with %v", err)
	}
	if _, err := there.Read(make([]byte, 1)); err == nil {
		t.Error("it is still connected")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.awaitRepeated(over); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was given up: %v", err)
	}
	close(s.done)
	if err := s.awaitRepeated(t.Context()); !errors.Is(err, errNotRepeated) {
		t.Errorf("a wait in a session that has ended: %v", err)
	}
	close(s.repeated)
	if err := s.awaitRepeated(t.Context()); err != nil && !errors.Is(err, errNotRepeated) {
		t.Error(err)
	}
}

// A peer that takes long to name its regions keeps its session while it is at it, and not for
// longer; and not for ever, if it names more than it can have.
func TestPeerNamesItsRegionsSlowly(t *testing.T) {
	const hold, between = 2 * answerTimeout, 2*answerTimeout - time.Second
	for what, c := range map[string]struct {
		names int
		says  bool
		want  time.Duration
	}{
		"and says that it is over":    {names: 7, says: true, want: 7 * between},
		"and then nothing any more":   {names: 7, want: 7*between + hold},
		"more than there can be":      {names: 2 * agent.MaxImports, want: agent.MaxImports*between + hold},
		"with nothing before the end": {names: 0, want: hold},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &conductor{cfg: &config.Config{Node: config.Node{LinkHold: hold}}, ctx: t.Context()}
			here, there := net.Pipe()
			defer there.Close()
			s := &session{life: context.Background(), endLife: func() {}, conn: &peerauth.Channel{Conn: here, Raw: here}, resumed: make(chan struct{}), named: make(chan struct{}, 1), done: make(chan struct{})}
			over := make(chan struct{})
			go func() {
				for range c.names {
					select {
					case <-time.After(between):
						s.named <- struct{}{}
					case <-over:
						return
					}
				}
				if c.says {
					close(s.resumed)
				}
			}()
			begin := time.Now()
			k.awaitPeerRepeated(s)
			close(over)
			if took := time.Since(begin); took != c.want {
				t.Errorf("%s: it took %v, want %v", what, took, c.want)
			}
			if ended := errors.Is(s.Reason(), errNotRepeated); ended == c.says {
				t.Errorf("%s: the session ended: %v", what, ended)
			}
		})
	}
}

// Regions of a domain that gets new memory meanwhile are not named again, and the session goes on for the others.
func TestRepeatInARetiredDomain(t *testing.T) {
	b := &bulk{domain: &domain{conductor: &conductor{}, retired: true}, exports: map[*region]fabric.MemoryRegion{{}: nil}}
	if err := b.repeat(&session{}); err != nil {
		t.Error(err)
	}
}

// A peer that reads slowly what it is told again of regions keeps only those in use that it knows.
func TestUnexportBesideADeafPeer(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	b := r.bulkWith(r.domainNamed("default"), "a")
	named := &region{domain: b.domain, view: &agent.Region{ID: slots.MakeRegionID(1, 1), Revoked: true}}
	b.mu.Lock()
	b.note(named, nil)
	b.mu.Unlock()
	go r.repeatExports(r.s)
	if _, err := r.peer.Read(make([]byte, 1)); err != nil { // of what it is told
		t.Fatal(err)
	}
	freed := make(chan *session, 1)
	go func() {
		freed <- b.unexport(&region{domain: b.domain, view: &agent.Region{ID: slots.MakeRegionID(2, 1)}})
	}()
	select {
	case late := <-freed:
		if late != nil {
			t.Error("the peer may come to a region that it never knew")
		}
	case <-time.After(time.Minute):
		t.Error("a region that the peer does not know waits for it to read")
	}
}
