package server

import (
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// maxBatch is how many requests a worker takes at a time at most. Taking and
// reporting costs three locked instructions, as much as handling a small request.
const maxBatch = 16

// quickHandler is how long a request may take on average for its worker to take
// more at a time: a finished answer waits for the end of its batch.
const quickHandler = int64(2 * time.Microsecond)

// batch is what a worker has taken and not yet reported. Its hints say where to
// look, no more: which worker handles a request is decided by the swap in PickHinted. The
// monitor can therefore give what waits in a batch behind a slow handler to another
// worker, and report what is finished, without asking the batch's worker.
type batch struct {
	// hints, n, order, turn, rescued and told are written with pool.mu held; the batch's own
	// worker reads hints and n without it.
	hints [maxBatch]slots.Hint
	n     int
	// order is that of the batch's only request; 0 for none.
	order orderKey
	// turn counts the batches of this worker.
	turn uint64
	// rescued: the monitor has offered what had not begun to other workers. told is how many of the hints it has reported,
	// each time when the worker was inside one handler for long.
	rescued bool
	told    int
	// call is the one that the batch's worker uses.
	call atomic.Pointer[Call]
	// served is how many of the hints have been dealt with; the next one is in
	// its handler.
	served atomic.Uint64
	// picking is 1 while its worker may have picked the first part of an exchange that is not entered yet.
	picking atomic.Uint64
	// limit is how many hints to take next, began when the last ones were taken.
	limit int
	began int64
	// lastTurn and lastServed are what the monitor saw at its last tick.
	lastTurn, lastServed uint64
}

// adapt chooses how many hints to take, by how long the last ones took.
func (b *batch) adapt(most int, waiting bool) {
	if most == 1 || b.n <= 1 && !waiting {
		b.limit, b.began = 1, 0 // nothing to gain: not worth a look at the clock
		return
	}
	now := shm.Nanotime()
	if b.began != 0 && now-b.began <= quickHandler*int64(max(1, b.n)) {
		b.limit = min(2*b.limit, most)
	} else {
		b.limit = 1
	}
	b.began = now
}

// refill reports what b's worker has served and takes more for it. It returns false
// if there is nothing, or the pool is shut.
func (p *pool) refill(b *batch) bool {
	p.mu.Lock()
	served := int(b.served.Load())
	if b.n > 0 {
		p.serving--
	}
	for _, h := range b.hints[b.told:served] {
		// A full ring loses the hint; the daemon then finds the answer by looking
		// at all words of its lanes. Hints of what another worker has served, or
		// nobody, do no harm.
		p.up.Stage(h)
	}
	if served > 0 {
		p.up.Publish()
		faultpoint.Here("report.published")
	}
	if b.order != 0 {
		p.orders.done(b.order)
		b.order = 0
	}
	b.adapt(p.batch, !p.down.Empty())
	if p.closed.Load() {
		p.waiting = append(p.waiting, b.hints[served:max(served, b.n)]...) // for linger
	}
	b.n = 0
	if !p.closed.Load() {
		for b.n < b.limit && b.order == 0 {
			h, ok := p.next(b)
			if !ok {
				break
			}
			b.hints[b.n] = h
			b.n++
		}
	}
	b.turn++
	p.unmapRetired()
	b.rescued, b.told = false, 0
	b.served.Store(0)
	nudge := false
	if b.n > 0 {
		p.taken += uint64(b.n)
		p.serving++
		nudge = b.n > 1 && p.resting
	}
	p.mu.Unlock()
	if served > 0 {
		p.reported()
	}
	if nudge {
		p.nudge()
	}
	return b.n > 0
}

// pop takes the next hint, with mu held.
func (p *pool) pop() (slots.Hint, bool) {
	if k := len(p.again); k > 0 {
		h := p.again[k-1]
		p.again = p.again[:k-1]
		return h, true
	}
	if len(p.waiting) > 0 {
		h := p.waiting[0]
		if p.waiting = p.waiting[1:]; len(p.waiting) == 0 {
			p.waiting = nil
		}
		return h, true
	}
	return p.down.Pop()
}

// reported tells the daemon that there are new hints in up.
func (p *pool) reported() {
	s := p.server.session
	if sleep := s.Bells.MarkWorker(p.server.id); sleep != 0 && !s.Bells.HasRung(sleep) {
		faultpoint.Here("report.before_bell")
		s.Bell.Ring()
		s.Bells.Rung(sleep)
	}
	faultpoint.Here("report.over")
}

// serveBatch serves the requests of b that have not been served.
func (p *pool) serveBatch(c *Call, b *batch) {
	for k := int(b.served.Load()); k < b.n; k++ {
		// What is left when the pool is shut has not been picked: the daemon
		// gives it to another process.
		if k > 0 && p.closed.Load() {
			return
		}
		p.serve(c, b.hints[k])
		// SYNC POINT (batch): the answer's word is stored before; pairs with
		// rescue.
		shm.StoreRelease(&b.served, uint64(k+1))
	}
}

// rescue looks for batches whose worker has been inside one handler since the last
// tick. What is finished is reported, and what has not begun is offered to other
// workers, once. It reports whether something was offered.
func (p *pool) rescue() (offered bool) {
	reported := false
	p.mu.Lock()
	for _, b := range p.batches {
		// SYNC POINT (batch): pairs with serveBatch.
		turn, served := b.turn, b.served.Load()
		stuck := turn == b.lastTurn && served == b.lastServed && int(served) < b.n
		b.lastTurn, b.lastServed = turn, served
		if !stuck || b.n == 1 {
			continue
		}
		for _, h := range b.hints[b.told:served] {
			p.up.Stage(h)
			reported = true
		}
		b.told = int(served)
		if b.rescued {
			continue // nobody was free to take the rest, and its worker has gone on, to another slow handler
		}
		b.rescued = true
		if rest := b.hints[served+1 : b.n]; len(rest) > 0 {
			p.again = append(p.again, rest...)
			offered = true
		}
	}
	if reported {
		p.up.Publish()
	}
	p.mu.Unlock()
	if reported {
		p.reported()
	}
	if offered && !p.wakeOne() {
		p.down.Ring() // whoever listens to the daemon's bell
	}
	return offered
}
