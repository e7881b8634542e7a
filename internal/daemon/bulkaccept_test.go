package daemon

import (
	"errors"
	"io"
	"testing"

	"github.com/rdmad/rdmad/internal/peerproto"
)

// A link that ends while the peer's connection for operations is being made leaves no protection domain.
func TestBulkAcceptedAtTheEndOfALink(t *testing.T) {
	left := 0
	for range 20 {
		r := newLinkRig(t)
		c, dev, s := r.conductor, r.dev, r.s
		go func() { _, _ = io.Copy(io.Discard, r.peer) }()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.acceptLane(s, &peerproto.Message{Type: peerproto.TypeOpen, Seq: 1, Lane: &peerproto.Lane{Domain: "default", Class: laneBulk, Bulk: true, Address: []byte("x")}})
		}()
		<-dev.waiting
		// As serve and serveSession do when the bootstrap connection ends.
		s.end(errors.New("connection reset"))
		close(s.done)
		c.lanesSuspended("a")
		<-done
		if dev.domains.Load() != 0 {
			left++
		}
		r.stop()
	}
	if left > 0 {
		t.Errorf("%d of 20 links that ended left a protection domain for ever", left)
	}
}
