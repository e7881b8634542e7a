package daemon

import (
	"testing"
	"time"
)

// An attempt to make a connection for operations that begins when the session that it was for is over does not ask the peer for one in
// the next session, which has an attempt of its own.
func TestAttemptOfAnEarlierSession(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.link.session = r.s // nobody reads what is sent over it
	b := r.bulkWith(r.allDomains()[0], "a")
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.open(7)
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("it asks the peer")
	}
}
