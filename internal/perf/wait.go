package perf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

const (
	// Stall is for how long a run may make no progress.
	Stall = link.Patience
	// atWork is after how many nanoseconds a side says again that it is at work.
	atWork = int64(Stall) / 12
	// longSleep bounds a sleep of an event-driven side; whatever it waits for wakes it.
	longSleep = time.Second
	// looks is how many polls in vain pass between two looks at the clock and the context.
	looks = 1024
	// verdictTime is how long the other side is given to say why a connection has ended.
	verdictTime = 2 * time.Second
)

// ErrStalled is wrapped by the error of a wait that took longer than Stall.
var ErrStalled = errors.New("no progress")

// waiter is how a session waits.
type waiter struct {
	cq      fabric.CQ
	poller  *poller.Poller // nil: by polling
	bell    *shm.Bell
	link    *link.Link
	explain func(fabric.Completion) error
	idle    uint // polls in vain in a row
	since   int64
	heard   uint64 // of the link, when since was set
	said    int64  // when this side said last that it is at work; 0: it has not measured yet
}

// Poll moves completions into c without waiting and returns their number. A completion that
// failed, and the end of a connection, is an error.
func (w *waiter) Poll(c []fabric.Completion) (int, error) {
	n, err := w.cq.Poll(c)
	if err != nil {
		return n, err
	}
	for i := range c[:n] {
		if c[i].Status != fabric.StatusSuccess || c[i].Op == fabric.OpDisconnect {
			return 0, w.broken(c[i])
		}
	}
	return n, nil
}

// broken finds out why a connection has ended, or something else has failed.
func (w *waiter) broken(c fabric.Completion) error {
	err := w.explain(c)
	if why := w.link.Verdict(verdictTime); why != nil {
		return fmt.Errorf("%w (%w)", why, err)
	}
	return err
}

// Await waits for completions and moves them into c. It returns 0 and no error when there is a
// message of the other side to be received instead, and an error when the other side is gone,
// ctx has ended, or nothing has come for Stall, not even a word that the other side is at work.
func (w *waiter) Await(ctx context.Context, c []fabric.Completion) (int, error) {
	for {
		n, err := w.Poll(c)
		if n > 0 || err != nil {
			w.idle = 0
			return n, err
		}
		if w.link.News() {
			w.idle = 0
			return 0, w.link.Err()
		}
		if err := w.Pause(ctx); err != nil {
			return 0, err
		}
	}
}

// Pause is what a loop does that has found nothing: it sleeps until there is news, if the
// session is event-driven, and looks after the limits of the wait. Progress resets them; see
// Resume.
func (w *waiter) Pause(ctx context.Context) error {
	w.idle++
	if w.idle == 1 {
		w.since = 0
	}
	if w.poller != nil {
		return w.sleep(ctx)
	}
	if w.idle%looks == 0 {
		return w.limits(ctx)
	}
	return nil
}

// Spin is Pause without sleep, for what nothing may wake, such as a send queue without room. A
// Poll must follow.
func (w *waiter) Spin(ctx context.Context) error {
	w.idle++
	if w.idle == 1 {
		w.since = 0
	}
	if w.poller != nil {
		if _, err := w.poller.Wait(0); err != nil {
			return err
		}
	}
	if err := w.link.Err(); err != nil {
		return err
	}
	if w.idle%looks == 0 {
		return w.limits(ctx)
	}
	return nil
}

// Resume says that a loop with Pause or Spin has made progress.
func (w *waiter) Resume() { w.idle = 0 }

// AtWork tells the other side now and then that this one is at work: to be called, with the time of
// shm.Nanotime, in loops of which that side sees nothing because they only read or write its memory.
func (w *waiter) AtWork(now int64) error {
	if w.said == 0 {
		w.said = now
	}
	if now-w.said < atWork {
		return nil
	}
	w.said = now
	return w.link.Alive()
}

// sleep waits in the kernel. A short sleep is spent behind the scheduler's back, which makes the
// wake-up faster; a long one hands the processor over.
func (w *waiter) sleep(ctx context.Context) error {
	armed, err := w.cq.Arm()
	if err != nil {
		return err
	}
	if !armed {
		// News may be there: look, but let the poller tell what is ready.
		_, err := w.poller.Wait(0)
		return err
	}
	if w.link.News() {
		// Who waits for something else learns of it all the same.
		_, err := w.poller.Wait(0)
		return err
	}
	n, err := w.poller.Wait(poller.RawLimit)
	if n > 0 || err != nil {
		return err
	}
	if err := w.limits(ctx); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, w.bell.Ring)()
	_, err = w.poller.Wait(longSleep)
	return err
}

// limits ends a wait that has lost its sense.
func (w *waiter) limits(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	now := shm.Nanotime()
	if heard := w.link.Heard(); w.since == 0 || heard != w.heard {
		w.since, w.heard = now, heard
	}
	if now-w.since > int64(Stall) {
		return fmt.Errorf("%w for %v: the connection stands, but the other side neither answers nor ends; its process may be stopped", ErrStalled, Stall)
	}
	shm.Yield()
	runtime.Gosched()
	return nil
}
