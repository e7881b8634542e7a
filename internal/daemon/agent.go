package daemon

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
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
	delay    delaying

	commands *commandQueue
	poll     *poller.Poller
	cqs      []fabric.CQ // by the number of the fabric; none without one
	comps    []fabric.Completion
	domains  []*agentDomain
	// ends are the fabric ends of lanes by their tag.
	ends map[uint64]laneEnd

	// tally is what the agent counts, and count its plain counters; the daemon's file of
	// counters has them.
	tally  *counters.Agent
	count  *counters.AgentCounts
	deaths deaths
	// company are those who would wait behind large operations.
	company company
	stop    bool
	// now is when the cycle began, by CLOCK_MONOTONIC, and stamp what journals and records
	// note of it. awake: there was no sleep since the cycle before.
	now   int64
	stamp uint32
	awake bool
	// asleep: it sleeps until somebody wakes it; for others to know.
	asleep atomic.Bool
}

// laneEnd is what completions are for: an out lane or an in lane.
type laneEnd interface {
	// immediate handles a group that arrived.
	immediate(imm uint32)
	// sent notes that work requests up to id are complete, and reports whether that
	// made something else possible.
	sent(id uint64) bool
	// broken notes the end of the connection.
	broken(c *fabric.Completion)
}

// cqDepth bounds the completions of all lanes of an agent that wait to be polled.
const cqDepth = 16 << 10

// newAgent makes an agent that uses the given devices; run starts it.
func newAgent(name string, idle idleStrategy, groupMax int, devs []fabric.Device, log zerolog.Logger) (*agent, error) {
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
	a.countIn(counters.NewAgent())
	a.tick()
	if err := a.watch(q.bell); err != nil {
		a.release()
		return nil, err
	}
	for _, dev := range devs {
		cq, err := dev.CreateCQ(cqDepth, p)
		if err != nil {
			a.release()
			return nil, fmt.Errorf("agent %s: completion queue: %w", name, err)
		}
		a.cqs = append(a.cqs, cq)
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
		woken := a.count.Wakes
		if a.cycle() > 0 {
			// When threads wait for this processor, they are mostly those that
			// have just been given work: what they make of it joins the next
			// cycle's groups, often without a sleep in between. Where some of it is
			// there already they have had the processor: the kernel mostly
			// lets a thread that is woken run at once.
			if a.count.Wakes == woken || !a.marked() {
				shm.Yield()
			}
			// Look for events at every other busy cycle: the first cycle after
			// a wake-up mostly finds nothing more and goes to sleep, which
			// looks anyway.
			if worked++; worked%3 == 0 {
				a.wait(0)
			}
			continue
		}
		worked = 0
		a.rest()
	}
	a.commands.close()
	a.tally.Become(counters.AgentEnded)
	a.release()
}

func (a *agent) release() {
	if a.delay.timer != nil {
		_ = a.delay.timer.Close()
	}
	for _, cq := range a.cqs {
		_ = cq.Close()
	}
	_ = a.poll.Close()
	_ = a.commands.bell.Close()
}

// cycle is one turn of duty. It returns how much there was to do.
func (a *agent) cycle() int {
	a.begin()
	work := a.commands.run()
	work += a.completions()
	for _, d := range a.domains {
		work += d.cycle()
	}
	a.company.look(a.now)
	return work
}

// completionBatches bounds how long completions can keep an agent from its
// other duties in one cycle, in batches of len(comps).
const completionBatches = 16

// completions deals with what the completion queues have, and returns how much of it was
// work.
func (a *agent) completions() (total int) {
	found := 0
	for _, cq := range a.cqs {
		n, busy := a.completionsOf(cq)
		found += n
		total += busy
	}
	a.count.Completions += uint64(found)
	a.count.CompletionDepth = uint64(found)
	return total
}

// completionsOf does so for one queue, and returns how many completions it has found.
func (a *agent) completionsOf(cq fabric.CQ) (found, total int) {
	for range completionBatches {
		n, err := cq.Poll(a.comps)
		if err != nil {
			event.CQFailed.On(&a.log).Err(err).Msg("completion queue failed")
		}
		found += n
		for i := range a.comps[:n] {
			if a.completion(&a.comps[i]) {
				total++
			}
		}
		if n < len(a.comps) {
			break
		}
	}
	return found, total
}

// completion hands a completion to its lane. It reports whether there was something to do:
// that a group has gone out mostly changes nothing, and is no reason to stay awake.
func (a *agent) completion(c *fabric.Completion) bool {
	if c.Status != fabric.StatusSuccess {
		*completionErrors(a.count, c.Status)++
	}
	e := a.ends[c.Tag]
	if e == nil {
		return true // flushed work of a lane that was closed before
	}
	switch {
	case c.Op == fabric.OpDisconnect || c.Status != fabric.StatusSuccess:
		e.broken(c)
	case c.Op == fabric.OpRecvImm:
		e.immediate(c.Imm)
	case c.Op != fabric.OpRecv:
		return e.sent(c.ID)
	}
	return true
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
	a.setTimer()
	// SYNC POINT (agent sleep): announced before the last look.
	for _, d := range a.domains {
		d.bells.PrepareSleep()
	}
	a.commands.prepareSleep()
	if !a.pending() {
		a.count.AgentSleeps++
		a.sleeps()
		if a.wait(poller.RawLimit) == 0 && !a.pending() && !a.rescan() {
			a.asleep.Store(true)
			a.wait(-1)
			a.asleep.Store(false)
		}
	}
	a.commands.cancelSleep()
	for _, d := range a.domains {
		d.bells.CancelSleep()
	}
}

// marked reports whether a worker has marked something that no cycle has taken.
func (a *agent) marked() bool {
	for _, d := range a.domains {
		if d.bells.Dirty() {
			return true
		}
	}
	return false
}

// pending reports whether a sleep must not begin.
func (a *agent) pending() bool {
	if a.commands.waiting() || a.marked() {
		return true
	}
	for _, d := range a.domains {
		if d.anyDue() {
			return true
		}
	}
	for _, cq := range a.cqs {
		asleep, err := cq.Arm()
		if err != nil {
			event.CQArm.On(&a.log).Err(err).Msg("completion queue cannot be armed")
		}
		if !asleep {
			return true
		}
	}
	return false
}

// rescan is the safety net under all hints: before a long sleep the agent looks
// at every slot of its lanes once. It reports whether it found anything.
func (a *agent) rescan() bool {
	found := false
	for _, d := range a.domains {
		d.balance(true) // no share stays for want of something to do
		for _, l := range d.outLanes {
			l.plan.Rescan()
			found = l.send() > 0 || found
		}
		// What was refused must be told to its worker, too.
		found = found || len(d.touched) > 0 || len(d.freed) > 0
		// The timer is not set for what has just been found and held back.
		found = found || d.due != 0
	}
	return found
}

func (a *agent) wait(timeout time.Duration) int {
	n, err := a.poll.Wait(timeout)
	if err != nil {
		event.PollerFailed.On(&a.log).Err(err).Msg("poller failed")
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
	// arrivals counts the requests with an order.
	arrivals uint32
	// again are lanes that have more to send than one cycle allows.
	againOut []*outLane
	againIn  []*inLane
	// delayed are lanes that hold a group back, due is when the first of them is to be
	// looked at, 0 for never. hurried: none may any more.
	delayed []delayedLane
	due     int64
	hurried bool
	// againWorkers are the workers that the last cycle had no time for, spareAgain is used
	// again. hints and scans are what is left of cycleHints and cycleScans.
	againWorkers, spareAgain []*agentWorker
	hints, scans             int
	// present are the workers whose processes are not known to be dead, strikes says what
	// follows from errors, and damages are those that nobody can be named for.
	present []*agentWorker
	strikes strikeRules
	damages strikes
	// mourned are the buried workers whose slots are not all free, with the times of their
	// deaths.
	mourned map[int]int64
	// retired: other memory has taken the place of this domain's.
	retired bool
	// out: the node is out of service, see outage.
	out bool
	// touched are the workers that got hints in this cycle.
	touched []*agentWorker
	// freed are the lanes in which slots were freed in this cycle.
	freed []*outLane
	// workerBytes is the most bytes of slots that a worker may have in flight; 0
	// for no limit. held is used by balance.
	workerBytes int
	held        [slots.MaxOwner + 1]uint32
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
	// draining is the method whose turns onTurn works on, firstMethod the number
	// of the one that takeTurns began with.
	draining    *agentMethod
	firstMethod int
	onTurn      func(queued) verdict
	// now is the time of the last arrival of requests, by CLOCK_MONOTONIC.
	now int64
	// judged is when judge last decided, and modest what.
	judged int64
	modest bool
	// What was used and can be used again, so that requests with references and
	// operations allocate nothing.
	spareHeld   []*held
	spareGrants []*grants
	spareOps    *agentOp
	// tracer follows requests; nil while nobody wants that.
	tracer *tracer
	// looks are for answers that are not taken, by onLook.
	looks  looks
	onLook func()
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
	d.onTurn, d.onLook = d.handOn, d.look
	d.onLane = func(lane uint16) {
		if l := d.outs[lane]; l != nil && !l.again {
			d.work += l.send()
		}
	}
	d.onWorker = func(id int) {
		if w := d.workers[id]; w != nil {
			d.work += d.heed(w)
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
	d.work += d.heedPostponed()
	d.bells.TakeLanes(d.onLane)
	d.bells.TakeWorkers(d.onWorker)
	if d.anyDue() {
		d.work += d.sendDue()
	}
	d.work += d.moveAll()
	againIn := d.againIn
	d.againIn = d.againIn[:0]
	for _, l := range againIn {
		l.again = false
	}
	for i := range againIn {
		d.work += againIn[i].send()
	}
	d.balance(false) // before anybody is woken who could claim by the old shares
	for i, l := range d.freed {
		l.ring.Freed(l.freed)
		l.freed = 0
		d.freed[i] = nil
	}
	d.freed = d.freed[:0]
	d.wake()
	if d.tracer != nil {
		d.tracer.look()
	}
	d.arm()
	return d.work
}

// wake wakes the workers that this cycle has something for, two at a time: on the same
// processor the kernel lets one that is woken run at once, and takes that from the agent for a
// while each time.
func (d *agentDomain) wake() {
	var first *atomic.Uint32
	for i, w := range d.touched {
		w.touched = false
		woken, sleeper := w.rings.Down.Rouse()
		if woken {
			d.agent.count.Wakes++
		}
		switch {
		case sleeper == nil:
		case first == nil:
			first = sleeper
		default:
			shm.FutexWakeTwo(first, sleeper)
			first = nil
		}
		d.touched[i] = nil
	}
	if first != nil {
		shm.FutexWake(first, shm.WakeAll)
	}
	d.touched = d.touched[:0]
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
