package client

import (
	"context"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// waiting lets the goroutines of a process wait for answers: one leads, which
// means it sleeps on the worker's bell, or polls, and completes every future whose
// answer arrives; the others follow, asleep on a channel until the leader completes
// their future or leaves and makes one of them the next leader.
type waiting struct {
	conn *Conn
	// lead is held by the leader, who alone may touch the hint ring.
	lead sync.Mutex
	// poll, nap, watch and alarm are the leader's.
	poll   shm.Poll
	linger shm.Linger
	nap    shm.Nap
	watch  watch
	alarm  alarm
	// room is how long a wait for room sleeps at first: freeSleep.
	room time.Duration
	// told: the leader waits for the daemon to say that this process may hold more, and slots that
	// the process frees itself are room, too.
	told atomic.Bool
	// freed is the lane in which the leader has freed slots and not yet woken
	// those who wait for some.
	freed *lane
	// slots is how many slots of it that is.
	slots int

	mu        sync.Mutex
	followers []*follower
}

// follower is a parked goroutine.
type follower struct {
	ch  chan struct{}
	pos int // in waiting.followers
}

var followers = sync.Pool{New: func() any { return &follower{ch: make(chan struct{}, 1)} }}

func (f *follower) poke() { poke(f.ch) }

// until returns when f is settled or ctx has ended. An answer that is here by then settles it, however long ctx has ended,
// unless another goroutine leads, which is about to take it.
func (w *waiting) until(ctx context.Context, f *Future) {
	followed := false
	for !f.settled() && ctx.Err() == nil {
		if w.lead.TryLock() {
			w.leadUntil(ctx, f)
			w.lead.Unlock()
			w.promote()
			if w.conn.ended.Load() && !f.settled() {
				// No answer comes: whoever is about to send the request, or to send it again, gives it its
				// outcome, and needs no leader for that.
				select {
				case <-f.channel():
				case <-ctx.Done():
				}
			}
			continue
		}
		w.follow(ctx, f)
		followed = true
	}
	if !f.settled() {
		w.reapIfFree() // ctx has ended, and perhaps the answer is here
	}
	// A poke may have meant "lead": hand it on.
	if followed && w.leaderless() {
		w.promote()
	}
}

// follow parks the goroutine until f is settled, leadership is free, or ctx ends.
func (w *waiting) follow(ctx context.Context, f *Future) {
	me := followers.Get().(*follower)
	w.mu.Lock()
	me.pos = len(w.followers)
	w.followers = append(w.followers, me)
	w.mu.Unlock()
	// SYNC POINT (future): stored before the last look at done. A second
	// waiter for the same future uses its channel.
	var also chan struct{}
	if !f.waiter.CompareAndSwap(nil, me) {
		also = f.channel()
	}
	if !f.settled() && !w.leaderless() {
		select {
		case <-me.ch:
		case <-also:
		case <-ctx.Done():
		}
	}
	f.waiter.CompareAndSwap(me, nil)
	w.leave(me)
}

// leaderless reports whether nobody leads at this moment.
func (w *waiting) leaderless() bool {
	if !w.lead.TryLock() {
		return false
	}
	w.lead.Unlock()
	return true
}

// leave takes a follower off the list and puts it back into the pool.
func (w *waiting) leave(me *follower) {
	w.mu.Lock()
	last := len(w.followers) - 1
	w.followers[me.pos] = w.followers[last]
	w.followers[me.pos].pos = me.pos
	w.followers = w.followers[:last]
	w.mu.Unlock()
	select {
	case <-me.ch: // sent too late to matter
	default:
	}
	followers.Put(me)
}

// promote wakes one follower so that it can take the lead.
func (w *waiting) promote() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.followers); n > 0 {
		w.followers[n-1].poke()
	}
}

// longSleep is how long a leader sleeps at most. Nothing needs the bound: the daemon ends
// a sleep, and one that dies between a store and its wake-up is followed by another that
// rings every bell, or by the end of the session.
const longSleep = time.Hour

// firstSleep is how long a context that ends may go unnoticed; not less than a
// tick of the kernel, see shm.RawLimit.
const firstSleep = 5 * time.Millisecond

// leadUntil completes futures until f is one of them, ctx has ended, or the
// session has.
func (w *waiting) leadUntil(ctx context.Context, f *Future) {
	down := &w.conn.session.Rings.Down
	defer w.watch.leave(ctx)
	// What a wake-up is about: it is looked at once more when the sleep is announced.
	due := func() bool { return w.stirring() || f.settled() || ctx.Err() != nil }
	// The answer is made by processes that may want this processor.
	near := f.lane != nil && f.lane.near
	for sleeps := 0; ; {
		w.reap()
		if f.settled() {
			break
		}
		if w.conn.ended.Load() {
			w.failAll()
			break
		}
		if ctx.Err() != nil {
			break
		}
		if w.poll.Until(due) || near && !w.nap.Lasting() && w.linger.Until(due) {
			continue
		}
		pages := w.conn.session.Pages()
		if pages != nil && w.nap.Lasting() && (ctx.Done() == nil || w.watch.on(ctx)) {
			w.park(pages, due)
			continue
		}
		bell := down.PrepareSleep()
		if due() {
			down.CancelSleep()
			continue
		}
		limit := longSleep
		if pages != nil {
			limit = shm.ParkAfter
		}
		if ctx.Done() != nil && !w.watch.on(ctx) {
			// Let the end of ctx ring the bell, unless the first sleep is
			// enough: the arrangement costs more than a quick call.
			if sleeps > 0 {
				w.watch.begin(ctx, w.conn.session.Wake)
			} else {
				limit = firstSleep
			}
		}
		w.nap.Sleep(down.Bell(), bell, limit)
		down.CancelSleep()
		sleeps++
	}
}

// park waits for the daemon's page, for a Wake or for the end of the core, without a thread.
func (w *waiting) park(pages *shm.Pages, due func() bool) {
	down := &w.conn.session.Rings.Down
	pages.Listen()
	bell := down.PreparePark()
	if !due() {
		if err := w.nap.Park(pages, down.Bell(), bell); err != nil {
			// The next core rings every bell, or the session ends.
			w.conn.session.NoPages(pages)
		}
	}
	down.CancelSleep()
}

// stirring reports whether there is something to look at for the leader.
func (w *waiting) stirring() bool {
	return !w.conn.session.Rings.Down.Empty() || w.conn.ended.Load() || w.overflowed()
}

// overflowed reports whether hints were lost since the last reap.
func (w *waiting) overflowed() bool {
	rings := w.conn.session.Rings
	if !rings.TakeOverflow() {
		return false
	}
	rings.SetOverflow() // for reap
	return true
}

// reapIfFree completes what has been answered, unless another goroutine leads.
// It reports whether it completed anything.
func (w *waiting) reapIfFree() bool {
	if !w.lead.TryLock() {
		return false
	}
	n := w.reap()
	w.lead.Unlock()
	w.promote()
	return n > 0
}

// reap completes every future whose answer has been announced, but for those that are while it is at work: who calls it may have what
// it waits for, and the goroutines that it completes calls of may make others for ever. Only the holder of lead may call it.
func (w *waiting) reap() (completed int) {
	rings := w.conn.session.Rings
	for range rings.Down.Len() {
		h, ok := rings.Down.Pop()
		if !ok {
			break
		}
		l := w.conn.lanes[int(h.Lane())%slots.MaxLanes].Load()
		if l == nil || h.Index() >= len(l.calls) {
			continue
		}
		// A hint may be old or wrong: the table and the slot word decide.
		if t, ok := l.outstanding(h.Index()); ok && h.TicketIs(t) && w.try(l, h.Index(), t) {
			completed++
		}
	}
	if rings.TakeOverflow() {
		completed += w.scan()
	}
	completed += w.deliver()
	w.wakeFree()
	return completed
}

// try completes the request with the ticket at slot i if its answer is there.
// wakeFree must follow.
func (w *waiting) try(l *lane, i int, ticket uint64) bool {
	// SYNC POINT (answer): pairs with Ring.Answer.
	word := l.ring.Word(i)
	if word.State() != slots.Ans || word.Owner() != w.conn.id || word.Ticket() != ticket {
		return false
	}
	f := l.hold(i, ticket)
	if f == nil {
		return false
	}
	if word.Run() != f.run.Len || !l.ring.Acquire(f.run, w.conn.id) {
		// Overwritten by another process of the domain, or moved by the daemon: then
		// deliver completes it.
		l.letGo(f)
		return false
	}
	l.drop(f)
	w.frees(l, word.Run())
	faultpoint.Here("answer.seen")
	f.finish()
	return true
}

// frees notes that slots of a lane become free. wakeFree must follow.
func (w *waiting) frees(l *lane, n int) {
	if w.freed != l {
		w.wakeFree()
		w.freed = l
	}
	w.slots += n
}

// wakeFree wakes those who wait for the slots that try has freed.
func (w *waiting) wakeFree() {
	if w.freed != nil {
		w.freed.freed(w.slots)
		w.freed, w.slots = nil, 0
	}
}

// scan looks at every outstanding request; hints were lost.
func (w *waiting) scan() (completed int) {
	w.each(func(l *lane, i int, ticket uint64) {
		if w.try(l, i, ticket) {
			completed++
		}
	})
	return completed
}

// recheck makes the leader, or the next one if there is none, look at every
// outstanding request.
func (w *waiting) recheck() {
	w.conn.session.Rings.SetOverflow()
	w.conn.session.Wake()
}

// failAll gives every outstanding request its outcome after the end of the
// session. Any goroutine may call it, also several at once.
func (w *waiting) failAll() {
	cause := w.conn.endError()
	s := &w.conn.spills
	s.mu.Lock()
	defer s.mu.Unlock()
	w.each(func(l *lane, i int, ticket uint64) {
		if f := l.take(i, ticket); f != nil {
			f.abandoned(cause)
		}
	})
	for key, f := range s.strays {
		delete(s.strays, key)
		f.abandoned(cause)
	}
}

// failLane is failAll for the requests of a lane that the daemon has lost.
func (w *waiting) failLane(l *lane) {
	// Somebody holds a request for a moment, without waiting for anything. No new ones come: the lane is closed.
	for !w.failThose(l) {
		runtime.Gosched()
	}
}

// failThose is failLane for the requests that nobody holds, and reports whether those were all. Then nothing is left of the lane's
// answers, for one of which a held request may be let go again: the next lane of this id may have requests with the same slots and
// tickets.
func (w *waiting) failThose(l *lane) (all bool) {
	s := &w.conn.spills
	s.mu.Lock()
	defer s.mu.Unlock()
	l.each(func(l *lane, i int, ticket uint64) {
		if f := l.take(i, ticket); f != nil {
			f.abandoned(errLaneLost)
		}
	})
	for key, f := range s.strays {
		if f.lane == l {
			delete(s.strays, key)
			f.abandoned(errLaneLost)
		}
	}
	for i := range l.calls {
		if l.calls[i].ticket.Load() != noCall { // held, or let go just now
			return false
		}
	}
	maps.DeleteFunc(s.answers, func(key spillKey, _ slots.Spilled) bool { return key.lane == l.id })
	return true
}

func (w *waiting) each(do func(l *lane, i int, ticket uint64)) {
	for _, l := range w.conn.allLanes() {
		l.each(do)
	}
}

// each calls do for every outstanding request of the lane.
func (l *lane) each(do func(l *lane, i int, ticket uint64)) {
	for i := range l.calls {
		if ticket, ok := l.outstanding(i); ok {
			do(l, i, ticket)
		}
	}
}

// liberate wakes everybody who waits, after the session has ended.
func (w *waiting) liberate() {
	if s := w.conn.session; s != nil && s.Rings != nil {
		s.Wake()
	}
	w.mu.Lock()
	for _, f := range w.followers {
		f.poke()
	}
	w.mu.Unlock()
}
