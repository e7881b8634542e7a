package daemon

import "github.com/rdmad/rdmad/slots"

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
	// underWay counts the requests in all lanes that have no outcome here yet.
	underWay int
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
	// expecting: services of this process are still to attach, and requests for them wait.
	expecting bool
	// soon are requests that the agent handles itself in this cycle or the next, oldest
	// first.
	soon fifo
	// out: the node is out of service, see outage.
	out bool
	// touched are the workers that got hints in this cycle.
	touched []*agentWorker
	// freed are the lanes in which slots were freed in this cycle.
	freed []*outLane
	// workerBytes is the most bytes of slots that a worker may have in flight; 0
	// for no limit. held is used by balance.
	workerBytes int
	// largestRun is the most bytes of slots of one request in any lane.
	largestRun int
	held       [slots.MaxOwner + 1]uint32
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
	// judged is when judge last decided, and modest and alike what.
	judged        int64
	modest, alike bool
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
	d.work += d.handleSoon() // no list is in use elsewhere: a handler may end this goroutine
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

// wake wakes the workers that this cycle has something for, all of them together: see
// shm.Wakes.
func (d *agentDomain) wake() {
	for i, w := range d.touched {
		w.touched, w.untold = false, false
		woken, sleeper, pager := w.rings.Down.Rouse()
		if woken {
			d.agent.count.Wakes++
			w.freed, w.freedBytes = 0, 0
		}
		if sleeper != nil {
			d.agent.wakes.Add(sleeper)
		}
		if pager != nil {
			d.agent.wakes.AddPage(pager)
		}
		d.touched[i] = nil
	}
	d.touched = d.touched[:0]
	d.agent.wakes.Flush()
}

// hint queues a hint for a worker, who is woken at the end of the cycle.
func (d *agentDomain) hint(w *agentWorker, h slots.Hint) bool {
	ok := w.rings.Down.Stage(h)
	d.touch(w)
	return ok
}

// touch has a worker woken at the end of the cycle.
func (d *agentDomain) touch(w *agentWorker) {
	if !w.touched {
		w.touched = true
		d.touched = append(d.touched, w)
	}
}
