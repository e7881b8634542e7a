package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// opQueue gives the operations of all handlers to the daemon and their results to
// the goroutines that wait for them. Of those one leads: it sleeps on the bell that
// the daemon rings and takes all results; the others follow, asleep on a channel
// until the leader has theirs or leaves and makes one of them the next leader.
type opQueue struct {
	session *attach.Session
	ring    *slots.OpRing
	ended   atomic.Bool

	mu     sync.Mutex // guards the ring's half for operations
	flying [slots.OpEntries]flyingOp
	// free are the numbers of the entries of flying that are nobody's.
	free chan uint16

	// lost is how many operations a core that is gone had taken, plus one, until the
	// leader has ended those of them that have no result.
	lost atomic.Uint64

	lead sync.Mutex // held by the leader, who alone takes results
	// poll and nap are the leader's.
	poll shm.Poll
	nap  shm.Nap

	followMu  sync.Mutex
	followers []uint16 // their operations

	staging staging
}

// flyingOp is an operation under way.
type flyingOp struct {
	// result is written before done is stored.
	result slots.Result
	done   atomic.Bool
	// wake is for its goroutine, if that follows.
	wake chan struct{}
	// position is how many operations were submitted before it, by the ring's count. It
	// is written before done is cleared.
	position uint64
}

func (q *opQueue) init(s *attach.Session) {
	q.session, q.ring = s, s.Ops
	q.free = make(chan uint16, slots.OpEntries)
	for i := range q.flying {
		q.flying[i].done.Store(true)
		q.flying[i].wake = make(chan struct{}, 1)
		q.free <- uint16(i)
	}
	q.staging.init(s)
}

// submit gives an operation to the daemon. The caller must wait for it.
func (q *opQueue) submit(o *slots.Op) (n uint16, err error) {
	select {
	case n = <-q.free:
	default:
		select {
		case n = <-q.free:
		case <-q.session.Done():
			return 0, ErrClosed
		}
	}
	f := &q.flying[n]
	o.Cookie = uint64(n)
	q.mu.Lock()
	f.position = q.ring.Submitted()
	// SYNC POINT (operation lost): position is visible to the leader that finds it not
	// done.
	f.done.Store(false)
	ok := q.ring.Submit(o) // there are no more numbers than room
	q.mu.Unlock()
	if !ok {
		f.done.Store(true)
		q.free <- n
		return 0, ErrClosed // the daemon's end is damaged
	}
	s := q.session
	if sleep := s.Bells.MarkWorker(s.Welcome.ID); sleep != 0 && !s.Bells.HasRung(sleep) {
		faultpoint.Here("op.before_bell")
		s.Bell.Ring()
		s.Bells.Rung(sleep)
	}
	faultpoint.Here("op.submitted")
	return n, nil
}

// wait returns the result of an operation. Without a daemon it is OpLost.
func (q *opQueue) wait(n uint16) slots.Result {
	f := &q.flying[n]
	followed := false
	for !f.done.Load() && !q.ended.Load() {
		if q.lead.TryLock() {
			q.leadUntil(f)
			q.lead.Unlock()
			q.promote()
			continue
		}
		q.follow(n, f)
		followed = true
	}
	if followed && q.leaderless() {
		q.promote() // what woke it may have meant "lead"
	}
	r := slots.Result{Status: slots.OpLost}
	// SYNC POINT (operation result): with done the result is there; pairs with reap.
	if f.done.Load() {
		r = f.result
	}
	f.done.Store(true)
	q.free <- n
	return r
}

// run submits an operation and waits for it.
func (q *opQueue) run(o *slots.Op) (slots.Result, error) {
	n, err := q.submit(o)
	if err != nil {
		return slots.Result{}, err
	}
	return q.wait(n), nil
}

// opSleep is how long a leader sleeps at most. The daemon's wake-up ends a sleep;
// the bound limits what a daemon that died before it can cost.
const opSleep = 50 * time.Millisecond

// leadUntil takes results until f has its own or the session has ended.
func (q *opQueue) leadUntil(f *flyingOp) {
	for {
		q.reap()
		q.endLost()
		if f.done.Load() || q.ended.Load() {
			return
		}
		if q.poll.Until(func() bool { return !q.ring.Empty() || q.ended.Load() || q.lost.Load() != 0 }) {
			continue
		}
		bell := q.ring.PrepareSleep()
		if q.ring.Empty() && !q.ended.Load() && q.lost.Load() == 0 {
			// Requests for other workers may come meanwhile.
			q.nap.Sleep(q.ring.Bell(), bell, opSleep)
		}
		q.ring.CancelSleep()
	}
}

// reap takes all results that are there. Only the holder of lead may call it.
func (q *opQueue) reap() {
	var r slots.Result
	for q.ring.Take(&r) {
		f := &q.flying[r.Cookie%slots.OpEntries]
		if f.done.Load() {
			continue // of nothing that is under way
		}
		f.result = r
		// SYNC POINT (operation result): result is visible to whoever loads
		// done; pairs with wait. A follower is in the list before it looks at done.
		f.done.Store(true)
		poke(f.wake)
	}
}

// resumed notes that the daemon's core is another now, and that the one before it had
// taken so many operations: what of them has no result yet never gets one.
func (q *opQueue) resumed(taken uint64) {
	if q.ring == nil {
		return // it came before Attach returned
	}
	q.lost.Store(taken + 1)
	q.ring.Ring() // if nobody leads, whoever waits next does it
}

// endLost ends the operations that were lost with a core. Only the holder of lead may
// call it, after reap: the results that the core has shown stand.
func (q *opQueue) endLost() {
	taken := q.lost.Load()
	if taken == 0 || !q.lost.CompareAndSwap(taken, 0) {
		return // or another core has gone meanwhile: the next turn sees it
	}
	q.reap() // what was shown between the last one and lost
	for i := range q.flying {
		f := &q.flying[i]
		// SYNC POINT (operation lost): pairs with submit.
		if f.done.Load() || int64(f.position-(taken-1)) >= 0 {
			continue
		}
		f.result = slots.Result{Cookie: uint64(i), Status: slots.OpLost}
		f.done.Store(true)
		poke(f.wake)
	}
}

// follow sleeps until f has its result, leadership is free, or the session has
// ended. It may return early.
func (q *opQueue) follow(n uint16, f *flyingOp) {
	q.followMu.Lock()
	q.followers = append(q.followers, n)
	q.followMu.Unlock()
	if !f.done.Load() && !q.ended.Load() && !q.leaderless() {
		<-f.wake
	}
	q.followMu.Lock()
	for i, have := range q.followers {
		if have == n {
			last := len(q.followers) - 1
			q.followers[i] = q.followers[last]
			q.followers = q.followers[:last]
			break
		}
	}
	q.followMu.Unlock()
}

// leaderless reports whether nobody leads at this moment.
func (q *opQueue) leaderless() bool {
	if !q.lead.TryLock() {
		return false
	}
	q.lead.Unlock()
	return true
}

// promote wakes one follower so that it can take the lead.
func (q *opQueue) promote() {
	q.followMu.Lock()
	if n := len(q.followers); n > 0 {
		poke(q.flying[q.followers[n-1]].wake)
	}
	q.followMu.Unlock()
}

// liberate ends every wait, after the end of the session.
func (q *opQueue) liberate() {
	if q.ring == nil {
		return // it ended before Attach returned
	}
	q.ended.Store(true)
	q.ring.Ring()
	q.followMu.Lock()
	for _, n := range q.followers {
		poke(q.flying[n].wake)
	}
	q.followMu.Unlock()
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
