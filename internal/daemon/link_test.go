package daemon

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A session that has ended stays its link's until its lanes rest, which takes turns of their
// agents. Who keeps the link connected sleeps meanwhile: it would take the processor that the
// agents need.
func TestEndedSessionIsAwaitedAsleep(t *testing.T) {
	var busy atomic.Bool // a goroutine that does not sleep would keep the bubble from ever being idle
	watch := time.AfterFunc(10*time.Second, func() { busy.Store(true) })
	defer watch.Stop()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		s := &session{life: context.Background(), endLife: func() {}, done: make(chan struct{}), forgotten: make(chan struct{})}
		c := &conductor{ctx: ctx, node: "a"}
		l := &link{conductor: c, name: "b", session: s, ctx: &impatient{Context: ctx, busy: &busy}, cancel: cancel}
		ended := make(chan struct{})
		go func() {
			l.dialLoop(l.ctx)
			close(ended)
		}()
		close(s.done)
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it did not sleep")
		default:
		}
		cancel()
		close(s.forgotten)
		<-ended
	})
}

// impatient is a context that has ended as soon as busy is set, too.
type impatient struct {
	context.Context
	busy *atomic.Bool
}

func (w *impatient) Err() error {
	if w.busy.Load() {
		return context.Canceled
	}
	return w.Context.Err()
}
