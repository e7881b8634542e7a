package client

import (
	"context"
	"errors"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

const (
	// freeSleep is how long a wait for free slots of a full ring sleeps at first. Whoever frees
	// slots ends it when enough are free; it bounds how long fewer go unnoticed. Each look in vain
	// makes the next sleep longer, until it is roomGrowth as long: a look goes through the whole
	// ring, and hundreds of processes that look take the processor from the agent that would make
	// room.
	freeSleep  = 5 * time.Millisecond
	roomGrowth = 16
	// toldGrowth is by how much longer a process at a limit waits to be told that it may hold more,
	// before it looks by itself: 0.1 s at first, and 1.6 s in the end. Of quick messages that have
	// made room beside slow ones, which hold more than half, the daemon speaks only when it has nothing else to do.
	toldGrowth = 20
)

// sleepForRoom sleeps until there may be room for a run of k slots of the lane l, for whose lack a
// claim has failed with why, or an answer of this process arrives, whose slots are room for another
// request. It ends with ctx. free is what the lane's free bell was before that claim, and room how long
// to sleep at most for slots that anybody may free; it is longer where the daemon says so. False: another
// goroutine leads, and will take the answers out.
func (w *waiting) sleepForRoom(ctx context.Context, l *lane, k int, why error, free uint32, room time.Duration) bool {
	if !w.lead.TryLock() {
		return false
	}
	if errors.Is(why, slots.ErrFull) {
		w.untilFreed(l, free, room)
	} else {
		w.untilTold(ctx, l, k, toldGrowth*room)
	}
	w.lead.Unlock()
	w.promote()
	return true
}

// untilFreed sleeps until slots of the lane's full ring are freed.
func (w *waiting) untilFreed(l *lane, free uint32, room time.Duration) {
	down := &w.conn.session.Rings.Down
	bell := down.PrepareSleep()
	if !w.stirring() {
		w.nap.SleepEither(l.ring.FreeBell(), free, down.Bell(), bell, room)
	}
	down.CancelSleep()
}

// untilTold sleeps at a limit of this process until the daemon says that it may hold more, by its
// bell for answers, or the process frees slots itself; or for patience.
func (w *waiting) untilTold(ctx context.Context, l *lane, k int, patience time.Duration) {
	down := &w.conn.session.Rings.Down
	// SYNC POINT (room freed here): stored before the look at the slots; pairs with lane.freed.
	w.told.Store(true)
	defer w.told.Store(false)
	defer w.watch.leave(ctx)
	w.alarm.forget()
	// SYNC POINT (alarm): looked at after the sleep is announced; pairs with alarm.within.
	due := func() bool { return w.stirring() || w.alarm.over.Load() || ctx.Err() != nil || l.mayHold(k) }
	pages := w.conn.session.Pages()
	for sleeps := 0; ; sleeps++ {
		parks, limit := pages != nil && w.nap.Lasting(), firstSleep
		if sleeps > 0 || parks {
			// It takes long. The end of ctx, or of patience, rings the bell.
			limit = shm.ParkAfter
			w.alarm.within(patience, w.conn.session.Wake)
			if ctx.Done() != nil && !w.watch.on(ctx) {
				w.watch.begin(ctx, w.conn.session.Wake)
			}
		}
		if parks {
			w.park(pages, due)
			return
		}
		// SYNC POINT (room): announced before the last look at the slots; the agent frees them
		// before it looks who sleeps.
		bell := down.PrepareSleep()
		rest := !due()
		if rest {
			w.nap.Sleep(down.Bell(), bell, limit)
		}
		down.CancelSleep()
		if !rest || down.Bell().Load() != bell {
			return
		}
	}
}
