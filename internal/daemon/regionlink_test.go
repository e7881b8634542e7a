package daemon

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
)

// A peer that does not say which regions it has loses its session, but not before it can have said
// so, however short links are waited for; who waits for that is not kept waiting by the end of one.
func TestPeerSaysNothingOfRegions(t *testing.T) {
	c := &conductor{cfg: &config.Config{Node: config.Node{LinkHold: 0}}, ctx: t.Context()}
	here, there := net.Pipe()
	defer there.Close()
	s := &session{conn: &channel{Conn: here, raw: here}, resumed: make(chan struct{}), repeated: make(chan struct{}), done: make(chan struct{})}
	begin := time.Now()
	c.awaitPeerRepeated(s)
	if took := time.Since(begin); took < openTimeout {
		t.Errorf("the session ended after %v", took)
	}
	if err := s.reason(); !errors.Is(err, errNotRepeated) {
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
