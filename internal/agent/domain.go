package agent

import (
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/slots"
)

// Domain is what an agent knows of a domain. It belongs to the agent's thread.
type Domain struct {
	agent *Agent
	bells *slots.Bells
	// lanes by id; nil where there is none. Out lanes and in lanes share the
	// ids; a local lane has both under one id.
	outs     [slots.MaxLanes]*OutLane
	ins      [slots.MaxLanes]*InLane
	OutLanes []*OutLane
	InLanes  []*InLane
	// displaced are lanes within the node that the last core has left and that have no place any more.
	displaced []*OutLane
	Workers   [slots.MaxOwner + 1]*Worker
	methods   []*Method // by the number in the method id
	// MethodBits is how many low bits of a method id are its number; the
	// others tell methods apart that had it one after the other.
	MethodBits int
	// arrivals counts the requests with an order. inherited: it goes on from what the last core has counted.
	arrivals  uint64
	inherited bool
	// underWay counts the requests in all lanes that have no outcome here yet.
	underWay int
	// roomier: workers have finished something, or something waits that was not tried, and the queues were not looked at since.
	// Once for all of them: a look may be at everything that waits.
	roomier bool
	// pass counts the looks at the queues. midway: one has come to the method with the number lookAt, and is to go on in the
	// next cycle. mostQueued is to how many requests one comes in a cycle, beside other domains to fewer.
	pass       uint64
	midway     bool
	lookAt     int
	mostQueued int
	// homesLeft: processes that have withdrawn have ended requests with an order, and their homes were not looked at since.
	homesLeft bool
	// againOut and againIn are lanes that have more to send than one cycle allows.
	againOut []*OutLane
	againIn  []*InLane
	// delayed are lanes that hold a group back, due is when the first of them is to be
	// looked at, 0 for never. hurried: none may any more.
	delayed []delayedLane
	due     int64
	hurried bool
	// againWorkers are the workers that the last cycle had no time for, spareAgain is used
	// again. hints, scans and ops are what is left of cycleHints, cycleScans and cycleOps.
	againWorkers, spareAgain []*Worker
	hints, scans, ops        int
	// present are the workers whose processes are not known to be dead, Strikes says what
	// follows from errors, and Damages are those that nobody can be named for.
	present []*Worker
	// mixed: there may be something in the rings that a process has written which is not present.
	mixed bool
	// parted are those that have said goodbye, offenders what processes did lately against the protocol, by process id.
	parted    parted
	offenders map[int]*window
	Strikes   StrikeRules
	Damages   strikes
	// mourned are the buried workers whose slots are not all free, with the times of their
	// deaths.
	mourned map[int]int64
	// consoling: some of their slots have become free, or they have just been buried, and nobody has looked at what is left.
	consoling bool
	// Retired: other memory has taken the place of this domain's.
	Retired bool
	// Expecting: services of this process are still to attach, and requests for them wait.
	Expecting bool
	// soon are requests that the agent handles itself in this cycle or the next, oldest
	// first.
	soon fifo
	// OutOfService: the node is that: its services take no new requests.
	OutOfService bool
	// touched are the workers that got hints in this cycle.
	touched []*Worker
	// freed are the lanes in which slots were freed in this cycle.
	freed []*OutLane
	// WorkerBytes is the most bytes of slots that a worker may have in flight; 0
	// for no limit. held is used by balance.
	WorkerBytes int
	// largestRun is the most bytes of slots of one request in any lane.
	largestRun int
	held       [slots.MaxOwner + 1]uint32
	// regions are the workers' regions by index, Peers those with which there are
	// operations on regions, and Movers what carries the operations out; near is
	// the one for those between workers of this node.
	regions []*Region
	Peers   []*Peer
	Movers  []*mover
	near    *mover
	// completed are the workers that have got results in this cycle.
	completed []*Worker
	// draining is the method whose turns onTurn works on, firstMethod the number
	// of the one that takeTurns began with.
	draining    *Method
	firstMethod int
	onTurn      func(Queued) verdict
	// now is the time of the last arrival of requests, by CLOCK_MONOTONIC.
	now int64
	// judged is when judge last decided, and modest and alike what.
	judged        int64
	modest, alike bool
	// What was used and can be used again, so that requests with references and
	// operations allocate nothing.
	spareHeld   []*held
	spareGrants []*grants
	spareOps    *operation
	// Tracer follows requests; nil while nobody wants that.
	Tracer *Tracer
	// Looks are for answers that are not taken, by OnLook.
	Looks  looks
	OnLook func()
	// work is what the cycle has done so far; onLane and onWorker are made once
	// so that the cycle makes no closures.
	work     int
	onLane   func(lane uint16)
	onWorker func(id int)
}

// NewDomain returns what an agent knows of a domain with bells b: nothing yet. It is not among the agent's domains.
func NewDomain(a *Agent, b *slots.Bells) *Domain {
	d := &Domain{agent: a, bells: b, mostQueued: cycleHints, offenders: make(map[int]*window)}
	d.near = &mover{domain: d, near: true, flows: make(map[int]*flow)}
	d.Movers = append(d.Movers, d.near)
	d.onTurn, d.OnLook = d.handOn, d.look
	d.onLane = func(lane uint16) {
		if l := d.outs[lane]; l != nil && !l.again {
			d.work += l.Send()
		}
	}
	d.onWorker = func(id int) {
		if w := d.Workers[id]; w != nil {
			d.work += d.heed(w)
		}
	}
	return d
}

// cycle does the domain's share of a turn of duty.
func (d *Domain) cycle() int {
	d.work = 0
	again := d.againOut
	d.againOut = d.againOut[:0]
	for _, l := range again {
		l.again = false
	}
	for i := range again {
		// Send may put the lane back, at a place that was read before.
		d.work += again[i].Send()
	}
	d.work += d.heedPostponed()
	d.bells.TakeLanes(d.onLane)
	d.bells.TakeWorkers(d.onWorker)
	if d.roomier || d.midway {
		d.lookOn(min(d.mostHints(), d.mostQueued))
		if d.midway {
			d.work++ // the next cycle goes on, whatever else there is to do
		}
	}
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
		d.work += againIn[i].Send()
	}
	d.balance(false) // before anybody is woken who could claim by the old shares
	for i, l := range d.freed {
		l.Ring.Freed(l.freed)
		l.freed = 0
		d.freed[i] = nil
	}
	d.freed = d.freed[:0]
	if d.consoling && len(d.mourned) > 0 {
		d.console()
	}
	d.wake()
	if d.Tracer != nil {
		d.Tracer.Look()
	}
	d.arm()
	return d.work
}

// wake wakes the workers that this cycle has something for, all of them together: see
// shm.Wakes.
func (d *Domain) wake() {
	pages := 0
	for i, w := range d.touched {
		w.touched, w.untold = false, false
		woken, sleeper, pager := w.Rings.Down.Rouse()
		if woken {
			d.agent.Count.Wakes++
			w.freed, w.freedBytes = 0, 0
		}
		if sleeper != nil {
			d.agent.Wakes.Add(sleeper)
		}
		switch {
		case pager == nil:
		case d.agent.timed > 0:
			d.page(w, pager)
		default:
			d.agent.Wakes.AddPage(pager)
			pages++
		}
		d.touched[i] = nil
	}
	d.touched = d.touched[:0]
	d.flush(pages)
}

// hint queues a hint for a worker, who is woken at the end of the cycle.
func (d *Domain) hint(w *Worker, h slots.Hint) bool {
	ok := w.Rings.Down.Stage(h)
	d.touch(w)
	return ok
}

// touch has a worker woken at the end of the cycle.
func (d *Domain) touch(w *Worker) {
	if !w.touched {
		w.touched = true
		d.touched = append(d.touched, w)
	}
}

// ApplyLimits changes what the agent holds workers to, on the agent's thread.
func (d *Domain) ApplyLimits(next *config.Config) {
	d.Strikes.Worker, d.Strikes.Domain = next.Limits.Strikes, next.Limits.DomainStrikes
	d.WorkerBytes = next.Limits.WorkerBytes
	d.Looks.After = next.Limits.SpillAfter
}
