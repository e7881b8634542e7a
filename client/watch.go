package client

import (
	"context"
)

// watch lets the end of a context ring the bell on which the leader sleeps. It belongs to
// the leader. A process that makes one call after the other mostly does so under the same
// context, and to arrange it anew for each call that takes long is dear; so what one wait
// has begun the next one goes on with.
type watch struct {
	// done is the channel of the context that is watched, and stop ends that; nil for
	// none. last is that of the last wait that was watched: contexts need not be
	// comparable, their channels are.
	done, last <-chan struct{}
	stop       func()
}

// on reports whether the end of ctx rings the bell.
func (w *watch) on(ctx context.Context) bool { return w.done == ctx.Done() }

// begin makes the end of ctx call ring.
func (w *watch) begin(ctx context.Context, ring func()) {
	w.end()
	w.done = ctx.Done()
	rung := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		ring()
		close(rung)
	})
	w.stop = func() {
		if !cancel() {
			<-rung
		}
	}
}

// leave is called at the end of a wait under ctx. The next wait is likely to be under the
// same context if the last one that was watched was, too: a context that was made for one
// call ends after it, and is not worth a ring.
func (w *watch) leave(ctx context.Context) {
	if w.done == nil {
		return
	}
	again := w.last == w.done
	w.last = w.done
	if !again || ctx.Err() != nil {
		w.end()
	}
}

// end stops watching. When it returns the bell is not rung any more: it may be unmapped
// then.
func (w *watch) end() {
	if w.done != nil {
		w.stop()
		w.done, w.stop = nil, nil
	}
}
