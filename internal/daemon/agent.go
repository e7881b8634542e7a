package daemon

import (
	"fmt"
	"runtime"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// agent moves the messages of its domains on a thread of its own. All fields
// but commands belong to that thread once run has started.
type agent struct {
	name     string
	log      zerolog.Logger
	idle     idleStrategy
	groupMax int

	commands *commandQueue
	poll     *poller.Poller
	cq       fabric.CQ // nil without a fabric
	comps    []fabric.Completion
	domains  []*agentDomain
	// ends are the fabric ends of lanes by their tag.
	ends map[uint64]laneEnd

	count counters
	stop  bool
}

// laneEnd is what completions are for: an out lane or an in lane.
type laneEnd interface {
	// immediate handles a group that arrived.
	immediate(imm uint32)
	// sent notes that work requests up to id are complete.
	sent(id uint64)
	// broken notes the end of the connection.
	broken(c *fabric.Completion)
}

// cqDepth bounds the completions of all lanes of an agent that wait to be polled.
const cqDepth = 16 << 10

// newAgent makes an agent; run starts it.
func newAgent(name string, idle idleStrategy, groupMax int, dev fabric.Device, log zerolog.Logger) (*agent, error) {
	p, err := poller.New()
	if err != nil {
		return nil, err
	}
	q, err := newCommandQueue()
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	a := &agent{
		name: name, log: log, idle: idle, groupMax: groupMax, commands: q, poll: p,
		comps: make([]fabric.Completion, 256), ends: make(map[uint64]laneEnd),
	}
	if err := a.watch(q.bell); err != nil {
		a.release()
		return nil, err
	}
	if dev != nil {
		if a.cq, err = dev.CreateCQ(cqDepth, p); err != nil {
			a.release()
			return nil, fmt.Errorf("agent %s: completion queue: %w", name, err)
		}
	}
	return a, nil
}

// Ready is called by the poller when a bell rang. Bells are registered edge
// triggered: a new ring makes a new event, so they need not be read.
func (a *agent) Ready(int, uint32) {}

// watch makes the agent wake up when b rings. Any goroutine may call it.
func (a *agent) watch(b *shm.Bell) error { return a.poll.Add(b.FD(), unix.EPOLLIN|unix.EPOLLET, a) }

// run is the agent's thread. It returns after a command has set stop.
func (a *agent) run() {
	runtime.LockOSThread()
	shm.SetThreadName("rdmad-" + a.name)
	for worked := 0; !a.stop; {
		if a.cycle() > 0 {
			// When threads wait for this processor, they are mostly those that
			// have just been given work: what they make of it joins the next
			// cycle's groups, often without a sleep in between.
			shm.Yield()
			// Look for events at every other busy cycle: the first cycle after
			// a wake-up mostly finds nothing more and goes to sleep, which
			// looks anyway.
			if worked++; worked%2 == 0 {
				a.wait(0)
			}
			continue
		}
		worked = 0
		a.rest()
	}
	a.commands.close()
	a.release()
}

func (a *agent) release() {
	if a.cq != nil {
		_ = a.cq.Close()
	}
	_ = a.poll.Close()
	_ = a.commands.bell.Close()
}

// cycle is one turn of duty. It returns how much there was to do.
func (a *agent) cycle() int {
	a.count.AgentCycles++
	work := a.commands.run()
	work += a.completions()
	for _, d := range a.domains {
		work += d.cycle()
	}
	return work
}

// completionBatches bounds how long completions can keep an agent from its
// other duties in one cycle, in batches of len(comps).
const completionBatches = 16

func (a *agent) completions() int {
	if a.cq == nil {
		return 0
	}
	total := 0
	for range completionBatches {
		n, err := a.cq.Poll(a.comps)
		if err != nil {
			a.log.Error().Err(err).Msg("completion queue failed")
		}
		for i := range a.comps[:n] {
			a.completion(&a.comps[i])
		}
		total += n
		if n < len(a.comps) {
			break
		}
	}
	return total
}

func (a *agent) completion(c *fabric.Completion) {
	e := a.ends[c.Tag]
	if e == nil {
		return // flushed work of a lane that was closed before
	}
	switch {
	case c.Op == fabric.OpDisconnect || c.Status != fabric.StatusSuccess:
		e.broken(c)
	case c.Op == fabric.OpRecvImm:
		e.immediate(c.Imm)
	case c.Op != fabric.OpRecv:
		e.sent(c.ID)
	}
}

// rest is called after a cycle without work: it sleeps, or not, as the idle
// strategy says, until there may be something to do.
func (a *agent) rest() {
	if a.idle.busy {
		a.wait(0)
		return
	}
	for until := time.Now().Add(a.idle.spin); a.idle.spin > 0 && time.Now().Before(until); {
		a.wait(0)
		if a.pending() {
			return
		}
	}
	// SYNC POINT (agent sleep): announced before the last look.
	for _, d := range a.domains {
		d.bells.PrepareSleep()
	}
	a.commands.prepareSleep()
	if !a.pending() {
		a.count.AgentSleeps++
		if a.wait(poller.RawLimit) == 0 && !a.pending() && !a.rescan() {
			a.wait(-1)
		}
	}
	a.commands.cancelSleep()
	for _, d := range a.domains {
		d.bells.CancelSleep()
	}
}

// pending reports whether a sleep must not begin.
func (a *agent) pending() bool {
	if a.commands.waiting() {
		return true
	}
	for _, d := range a.domains {
		if d.bells.Dirty() {
			return true
		}
	}
	if a.cq == nil {
		return false
	}
	asleep, err := a.cq.Arm()
	if err != nil {
		a.log.Error().Err(err).Msg("completion queue cannot be armed")
	}
	return !asleep
}

// rescan is the safety net under all hints: before a long sleep the agent looks
// at every slot of its lanes once. It reports whether it found anything.
func (a *agent) rescan() bool {
	found := false
	for _, d := range a.domains {
		for _, l := range d.outLanes {
			l.plan.Rescan()
			found = l.send() > 0 || found
		}
		// What was refused must be told to its worker, too.
		found = found || len(d.touched) > 0 || len(d.freed) > 0
	}
	return found
}

func (a *agent) wait(timeout time.Duration) int {
	n, err := a.poll.Wait(timeout)
	if err != nil {
		a.log.Error().Err(err).Msg("poller failed")
	}
	return n
}

// idleStrategy says what an agent does when there is nothing to do.
type idleStrategy struct {
	// busy: poll for ever.
	busy bool
	// spin: poll for so long before going to sleep.
	spin time.Duration
}

// agentDomain is what an agent knows of a domain. It belongs to the agent's thread.
type agentDomain struct {
	agent *agent
	bells *slots.Bells
	// lanes by id; nil where there is none. Out lanes and in lanes share the
	// ids; a local lane has both under one id.
	outs     [slots.MaxLanes]*outLane
	ins      [slots.MaxLanes]*inLane
	outLanes []*outLane
	inLanes  []*inLane
	workers  [slots.MaxOwner + 1]*agentWorker
	methods  []*agentMethod // by the number in the method id
	// methodBits is how many low bits of a method id are its number; see
	// domain.methodID.
	methodBits int
	// again are lanes that have more to send than one cycle allows.
	againOut []*outLane
	againIn  []*inLane
	// touched are the workers that got hints in this cycle.
	touched []*agentWorker
	// freed are the lanes in which slots were freed in this cycle.
	freed []*outLane
	// regions are the workers' regions by index, peers those with which there are
	// operations on regions, and movers what carries the operations out; near is
	// the one for those between workers of this node.
	regions []*agentRegion
	peers   []*agentPeer
	movers  []*mover
	near    *mover
	// againOps are the workers with more operations than one cycle allows.
	againOps []*agentWorker
	// completed are the workers that have got results in this cycle.
	completed []*agentWorker
	// What was used and can be used again, so that requests with references and
	// operations allocate nothing.
	spareHeld   []*held
	spareGrants []*grants
	spareOps    *agentOp
	// work is what the cycle has done so far; onLane and onWorker are made once
	// so that the cycle makes no closures.
	work     int
	onLane   func(lane uint16)
	onWorker func(id int)
}

func newAgentDomain(a *agent, b *slots.Bells) *agentDomain {
	d := &agentDomain{agent: a, bells: b}
	d.near = &mover{domain: d, near: true, flows: make(map[int]*flow)}
	d.movers = append(d.movers, d.near)
	d.onLane = func(lane uint16) {
		if l := d.outs[lane]; l != nil && !l.again {
			d.work += l.send()
		}
	}
	d.onWorker = func(id int) {
		if w := d.workers[id]; w != nil {
			d.work += d.submitted(w) + d.collect(w)
		}
	}
	return d
}

// cycle does the domain's share of a turn of duty.
func (d *agentDomain) cycle() int {
	d.work = 0
	again := d.againOut
	d.againOut = d.againOut[:0]
	for _, l := range again {
		l.again = false
	}
	for i := range again {
		// send may put the lane back, at a place that was read before.
		d.work += again[i].send()
	}
	d.bells.TakeLanes(d.onLane)
	d.bells.TakeWorkers(d.onWorker)
	d.work += d.moveAll()
	againIn := d.againIn
	d.againIn = d.againIn[:0]
	for _, l := range againIn {
		l.again = false
	}
	for i := range againIn {
		d.work += againIn[i].send()
	}
	for i, l := range d.freed {
		l.freed = false
		l.ring.WakeFree()
		d.freed[i] = nil
	}
	d.freed = d.freed[:0]
	for i, w := range d.touched {
		w.touched = false
		if w.rings.Down.Wake() {
			d.agent.count.Wakes++
		}
		d.touched[i] = nil
	}
	d.touched = d.touched[:0]
	return d.work
}

// hint queues a hint for a worker, who is woken at the end of the cycle.
func (d *agentDomain) hint(w *agentWorker, h slots.Hint) bool {
	ok := w.rings.Down.Stage(h)
	if !w.touched {
		w.touched = true
		d.touched = append(d.touched, w)
	}
	return ok
}
