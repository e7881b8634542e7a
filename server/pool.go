package server

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// pool runs handlers on up to a given number of workers. One worker is enough
// while handlers are quick: it sleeps on the bell that the daemon rings, and
// takes requests one after the other. A monitor that ticks only while there is
// work wakes another when all that are awake are inside slow handlers, or when
// requests wait and handlers take long.
type pool struct {
	server *Server
	down   *slots.HintRing
	up     *slots.HintRing

	// mu guards down, which has a single consumer, up, which has a single
	// producer, and what the monitor looks at.
	mu        sync.Mutex
	taken     uint64 // requests taken so far
	listening bool   // a worker sleeps on the daemon's bell
	resting   bool   // the monitor waits for work
	// batches are those of all workers, again hints that were taken out of them.
	batches []*batch
	again   []slots.Hint
	orders  orders
	batch   int // how many requests a worker may take at a time
	// active counts workers that are awake, serving those of them that are
	// inside a handler. Of the others the last one to go to sleep does so on
	// the daemon's bell; the rest sleep on idle.
	active, serving int
	// relieving: the monitor, which is no worker, serves parts. picking is like that of a batch.
	relieving bool
	picking   atomic.Uint64
	// waiting are requests that were passed over to get at the parts behind them, swept what was left of them when those
	// that had been taken back were dropped.
	waiting []slots.Hint
	swept   int
	// retired are lanes whose memory goes when nobody uses it.
	retired []retiredLane

	closed atomic.Bool
	// poll and nap are those of the worker that sleeps on the daemon's bell.
	poll   shm.Poll
	nap    shm.Nap
	idle   chan struct{}
	work   chan struct{} // wakes the monitor
	quit   chan struct{} // closed when the pool shuts
	shutMu sync.Once
	// goroutines are the workers and the monitor.
	goroutines sync.WaitGroup
}

func (p *pool) init(s *Server) {
	p.server = s
	p.down, p.up = &s.session.Rings.Down, &s.session.Rings.Up
	p.idle = make(chan struct{}, s.workers)
	p.work = make(chan struct{}, 1)
	p.quit = make(chan struct{})
	p.batch = 1
	if s.workers > 1 { // else nobody takes what waits in a batch
		p.batch = maxBatch
	}
}

// tick is how long a waiting request must have been passed over before another
// worker is woken for it.
const tick = time.Millisecond

// run serves until shut and returns when all handlers have.
func (p *pool) run(workers int) {
	p.active = 1
	for i := range workers {
		b := &batch{limit: 1}
		p.mu.Lock()
		p.batches = append(p.batches, b)
		p.mu.Unlock()
		p.goroutines.Go(func() { p.worker(b, i == 0) })
	}
	p.goroutines.Go(p.monitor)
	p.goroutines.Wait()
}

// shut makes run return, and reports whether it was this call that did so. It may be called before run.
func (p *pool) shut() (first bool) {
	p.shutMu.Do(func() {
		p.closed.Store(true)
		close(p.quit)
		p.down.Ring()
		first = true
	})
	return first
}

// worker is the life of one worker. awake says that it is counted in active; then it
// begins with what b still has.
func (p *pool) worker(b *batch, awake bool) {
	c := &Call{server: p.server, batch: b}
	b.call.Store(c)
	if awake {
		p.serveBatch(c, b)
	}
	for {
		if !awake {
			select {
			case <-p.idle:
			case <-p.quit:
				return
			}
		}
		p.busy(c, b)
		if p.closed.Load() {
			return
		}
		awake = false
	}
}

// busy serves requests until there are none, and then sleeps on the bell if no
// other worker is awake to do that.
func (p *pool) busy(c *Call, b *batch) {
	for !p.closed.Load() {
		if p.refill(b) {
			p.serveBatch(c, b)
			continue
		}
		if p.retire() {
			return
		}
		p.sleep()
	}
	p.refill(b)
}

// retire lets the caller go to sleep on idle, unless all others that are awake are
// inside handlers.
func (p *pool) retire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active-p.serving <= 1 {
		return false
	}
	p.active--
	return true
}

// longSleep is how long a worker sleeps at most. Nothing needs the bound: a core that
// dies between its store and its wake-up is followed by one that rings every bell.
const longSleep = time.Hour

func (p *pool) sleep() {
	p.mu.Lock()
	p.listening = true
	p.mu.Unlock()
	for !p.stirring() {
		if !p.poll.Until(p.stirring) {
			p.nod()
			break
		}
	}
	p.mu.Lock()
	p.listening = false
	p.mu.Unlock()
	p.nudge()
}

// stirring reports whether there is something to look at for who listens.
func (p *pool) stirring() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.down.Empty() || p.aside() || p.closed.Load()
}

// nod sleeps on the daemon's bell, once.
func (p *pool) nod() {
	bell := p.down.PrepareSleep()
	switch {
	case p.stirring():
	case p.inside():
		p.nap.SleepBeside(p.down.Bell(), bell, longSleep)
	default:
		p.nap.Sleep(p.down.Bell(), bell, longSleep)
	}
	p.down.CancelSleep()
}

// nudge starts the monitor again if a pause has stopped it: nobody may listen to
// the daemon's bell from now on.
func (p *pool) nudge() { poke(p.work) }

// serve handles the request that h names, if there is one.
func (p *pool) serve(c *Call, h slots.Hint) {
	r := p.server.lanes[int(h.Lane())%slots.MaxLanes].Load()
	if r == nil || h.Index() >= r.Geometry().Slots {
		return // not a hint of ours
	}
	picking := &p.picking
	if c.batch != nil {
		picking = &c.batch.picking
	}
	// SYNC POINT (picking): before the swap in PickHinted. Pairs with entered.
	shm.StoreRelease(picking, 1)
	u, ok := r.PickHinted(h, p.server.id)
	if !ok {
		shm.StoreRelease(picking, 0)
		return // taken back by the daemon, another worker's, or an old hint
	}
	if freshCalls {
		c = &Call{server: c.server, batch: c.batch}
		if c.batch != nil {
			c.batch.call.Store(c)
		}
	}
	c.ring, c.run, c.ctx, c.cancel, c.lane = r, u, nil, nil, h.Lane()
	if part, _ := isPart(r.Header(u), r.Payload(u)); part {
		p.server.exchanges.serve(c)
		// SYNC POINT (picking): after the exchange is entered. Pairs with entered.
		shm.StoreRelease(picking, 0)
		return
	}
	shm.StoreRelease(picking, 0)
	if slots.GlanceFlags(r.Header(u))&slots.FlagPart != 0 {
		p.wakeOne() // the handler of a large request is not quick: others take what comes meanwhile
	}
	c.serve()
	r.Finish(u, p.server.id)
	faultpoint.Here("serve.over")
	if c.panicked != nil {
		p.announce(h) // the log may take long, and the batch tells the daemon at its end only; a second hint does no harm
		c.sayPanic()
	}
}

// succeed does what is left of serve, and makes another goroutine the worker in place of
// the one whose handler has exited. The call's answer has been written.
func (p *pool) succeed(c *Call) {
	defer p.server.said.say(slog.LevelError, "rdmad: handler called runtime.Goexit") // which may take long
	c.ring.Finish(c.run, p.server.id)
	if c.inline {
		p.announce(slots.MakeHint(c.lane, c.run.Index, c.run.Ticket))
		return
	}
	b := c.batch
	// SYNC POINT (batch): pairs with rescue.
	shm.StoreRelease(&b.served, b.served.Load()+1)
	p.goroutines.Go(func() { p.worker(b, true) })
}

// monitor wakes another worker when all that are awake have been inside their
// handlers for a tick, so that somebody takes what waits or, if nothing does,
// listens to the daemon's bell.
func (p *pool) monitor() {
	t := time.NewTicker(tick)
	defer t.Stop()
	var last uint64
	every := tick
	c := &Call{server: p.server}
	for quiet := 0; ; {
		select {
		case <-t.C:
		case <-p.quit:
			p.linger(c, t)
			return
		}
		taken, active, listening, waiting := p.look()
		stuck := taken == last && !listening
		slow := waiting && taken-last < quickPerTick*uint64(active)
		quiet++
		if stuck && waiting && p.serveParts(c) {
			quiet = 0
		}
		if p.rescue() || (stuck || slow) && p.wakeOne() || taken != last {
			quiet = 0
		}
		last = taken
		if quiet < quietTicks || !listening {
			// While nobody listens, because all workers are inside handlers, only the
			// ticks notice parts that come: see serveParts.
			next := tick
			if quiet >= quietTicks {
				next = lazyTick
			}
			if next != every {
				every = next
				t.Reset(every)
			}
			continue
		}
		// Somebody listens: no ticks until it wakes up.
		t.Stop()
		p.rest(true)
		select {
		case <-p.work:
		case <-p.quit:
			p.linger(c, t)
			return
		}
		p.rest(false)
		t.Reset(tick)
		every, quiet = tick, 0
	}
}

// lazyTick is how often the monitor looks when nothing has happened for a while although
// nobody listens to the daemon's bell.
const lazyTick = 10 * time.Millisecond

// quickPerTick is how many requests a worker takes in a tick if its handlers are
// quick, so that a backlog is better left to it than shared with a thread that
// would have to be woken first.
const quickPerTick = 20

// look returns how many requests have been taken, how many workers are awake,
// whether one listens to the daemon's bell, and whether requests wait.
func (p *pool) look() (taken uint64, active int, listening, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, p.active, p.listening, !p.down.Empty() || p.aside()
}

// rest notes that the monitor waits to be nudged, or no longer.
func (p *pool) rest(resting bool) {
	p.mu.Lock()
	p.resting = resting
	p.mu.Unlock()
}

// quietTicks is after how many uneventful ticks the monitor stops.
const quietTicks = 10

// wakeOne wakes a worker that sleeps on idle and reports whether there was one.
func (p *pool) wakeOne() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active >= cap(p.idle) {
		return false
	}
	p.active++
	p.idle <- struct{}{} // has room for every worker
	return true
}
