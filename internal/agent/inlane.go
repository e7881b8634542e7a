package agent

import (
	"iter"
	"sync/atomic"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// InLane is the answering end of a lane: the mirror of the requester's ring, and
// a private record of each request in it. It belongs to the agent.
type InLane struct {
	domain  *Domain
	id      uint16
	geo     slots.Geometry
	Ring    *slots.Ring
	records []record // by first slot
	// kept are the records as a later core will find them, and Mirror names what they
	// are about: the requester asks for it by this name when it comes back. 0: its
	// requests were dropped. A local lane has none.
	kept   *vault.Records
	Mirror *atomic.Uint64
	// Dropped: the mirror is forgotten, and ring and vault will be unmapped. Whoever was told of the
	// lane before looks here first, on the agent.
	Dropped bool
	covered []bool // slots of active requests' runs
	Busy    int    // active records
	// callers are what its callers have under way, by attach id; there is none
	// behind lastCaller.
	callers    []callerUse
	lastCaller uint16
	answers    *groupsend.Answers
	// End is nil while the lane is suspended or down, and always for a local
	// lane, whose answers go to Local instead.
	End   *LaneEndpoint
	Local *OutLane
	// Peer has the regions of the requester's node; nil for a local lane.
	Peer *Peer
	// Clock is what to add to the requester's clock to get this node's, in
	// nanoseconds, and Compared when the clocks were compared, by this node's. OnDoubt, if set, has
	// that done again, soon.
	Clock, Compared int64
	OnDoubt         func()
	again           bool // in Domain.againIn
	// delay holds groups back. delayed: in Domain.delayed. soonest is the earliest
	// deadline of the answers that are not posted, 0 for none.
	delay   groupsend.Delay
	delayed bool
	soonest int64
	moved   traffic
	Row     *counters.Lane // what is counted of the lane; of a local one the out lane has it
	// OnBroken is called, on a goroutine of its own, when the connection has ended by itself; nil: nobody is told.
	OnBroken func(error)
	// doomed are the tickets, by slot, of requests that are on their way and whose callers
	// are gone; nil for none. parts are the callers with which a process may have an
	// exchange.
	doomed map[int]uint64
	parts  map[*Worker]*CallerSet
	// blocked is the last look at the queues in which no process of a method took a request of the lane.
	blocked blocked
	// Left: it was given up while handlers used its slots, and does not come up again.
	Left bool
	// OnQuiet is called once, if set, when the lane is down and no handler
	// uses its slots any more.
	OnQuiet func()
}

// record is what this daemon knows of the request in a slot.
type record struct {
	active bool
	seen   bool // ticket is that of an earlier request
	oneway bool
	// done: the answer, of length bytes, is in the slots. owed: the requester has
	// asked for it.
	done, owed bool
	// refs: it refers to regions. alone: it is small and needs neither regions nor other requests, so that an agent can handle it.
	// The latter is not known after the core has been replaced.
	refs, alone bool
	run         uint16
	worker      uint16 // the service worker that has it; 0 for none
	to          uint16 // the service worker that must have it; 0 for any
	order       uint16 // the number of its order; 0 for none
	from        uint16 // the attach id of the caller, at its node
	// arrival numbers the requests of the domain that have an order, and arrivalHigh has the bits 32 to 47 of that number: a
	// request may wait for longer than it takes for 2^31 others to arrive.
	arrivalHigh uint16
	method      uint32
	answer      uint32
	arrival     uint32
	length      uint32
	// at is the agent's stamp of when it arrived.
	at     uint32
	ticket uint64
	// deadline is by this node's clock; 0 for none, and after the core has been replaced.
	deadline int64
	// grants are those of its regions that the handler may use; nil for none, and after the core has been replaced.
	grants *grants
}

// NewInLane returns the answering end of a lane over the mirror r, with the vault v, that sends groups of at most groupMax
// answers. It is down.
func NewInLane(d *Domain, id uint16, r *slots.Ring, v *vault.Vault, groupMax int) *InLane {
	g := r.Geometry()
	return &InLane{
		domain: d, id: id, geo: g, Ring: r, Row: new(counters.Lane), kept: v.Records, Mirror: v.Mirror,
		records: make([]record, g.Slots),
		covered: make([]bool, g.Slots),
		callers: make([]callerUse, slots.MaxOwner+1),
		answers: groupsend.NewAnswers(g, groupMax),
		delay:   groupsend.NewAnswerDelay(d.agent.delay.limit, groupMax),
	}
}

// finished takes the answer of slot i that worker w says to have finished.
func (l *InLane) finished(i int, w *Worker) bool {
	if i >= l.geo.Slots {
		return false
	}
	rec := &l.records[i]
	word := l.Ring.AnswerWord(i)
	// SYNC POINT (answer in place): pairs with Ring.Finish.
	if !rec.active || int(rec.worker) != w.ID || word != slots.MakeWord(slots.Done, int(rec.run), w.ID, rec.ticket) {
		return false
	}
	if rec.grants != nil && rec.grants.holdBack() {
		return false
	}
	w.outstanding--
	w.ended++
	var h slots.Header
	clean := h.Decode(l.Ring.HeaderAt(i))
	err := h.CheckAnswer(l.geo, int(rec.run), rec.ticket)
	switch {
	case !clean || err != nil || !h.Fits(rec.answer):
		l.domain.agent.Count.ProtocolErrors++
		l.domain.damage(l.Local != nil)
		l.refuse(i, slots.StatusMaybeExecuted, "the handler's answer was damaged")
	default:
		switch {
		case h.Flags&slots.FlagPart != 0 && rec.to == 0:
			l.exchanges(w, rec.from)
		case !rec.refs:
			l.domain.agent.company.met++
		}
		l.countOutcome(i, h.Status)
		l.done(i, h.Length)
	}
	if w.Withdrawn && rec.order != 0 {
		l.domain.homesLeft = true
	}
	l.later()
	return true
}

// refuse answers the recorded request in slot i with an error.
func (l *InLane) refuse(i int, status slots.Status, text string) {
	l.domain.agent.Count.Refused++
	l.countOutcome(i, status)
	rec := &l.records[i]
	l.kept.Failing(i, status)
	l.done(i, writeError(l.Ring, i, int(rec.run), rec.ticket, status, text))
}

// refuseGone answers a part whose process serves no more.
func (l *InLane) refuseGone(i int) {
	l.refuse(i, slots.StatusNotExecuted, "the process that had begun with it is gone")
	l.later()
}

// done ends the record of slot i, whose answer of length bytes is in place.
func (l *InLane) done(i int, length uint32) {
	rec := &l.records[i]
	run := int(rec.run)
	// The answer word stays as it is: nobody looks at it without a record.
	l.unassign(i)
	l.closed(i)
	rec.active, rec.done, rec.length = false, true, length
	l.kept.Done(i, length)
	if g := rec.grants; g != nil {
		rec.grants = nil
		g.close()
	}
	for j := i; j < i+run; j++ {
		l.covered[j] = false
	}
	l.Busy--
	l.domain.underWay--
	l.Row.Busy--
	l.Row.BusySlots -= uint64(run)
	if l.End != nil || l.Local != nil {
		l.promised(rec.deadline)
		l.answers.Add(i, run, length)
		return
	}
	if l.Busy == 0 && l.OnQuiet != nil {
		quiet := l.OnQuiet
		l.OnQuiet = nil
		go quiet()
	}
}

// underWay is as that of an OutLane, of records.
func (l *InLane) underWay() iter.Seq[int] {
	return firstOf(l.Busy, len(l.records), func(i int) bool { return l.records[i].active })
}

// later puts the lane on the list of those that send answers in this cycle.
func (l *InLane) later() {
	if !l.again {
		l.again = true
		l.domain.againIn = append(l.domain.againIn, l)
	}
}

// Send posts finished answers in groups and returns how many.
func (l *InLane) Send() int {
	limit := groupBudget(l.End, l.Local != nil)
	if limit == 0 {
		l.delay.Late()
		l.noRoom()
		return 0 // down, or full: then sent() comes back here
	}
	if held, work := l.holdBack(); held {
		return work
	}
	n, more := l.answers.Plan(l, limit)
	l.sentAnswers(more)
	if l.End != nil {
		if err := l.End.flush(); err != nil {
			l.Fail("post failed", err)
			return n
		}
		more = more && l.End.room() > 0
	}
	if more {
		l.later()
	}
	return n
}

// Part implements groupsend.Poster.
func (l *InLane) Part(from, bytes int) {
	if l.Local == nil {
		l.domain.agent.Count.AnswerBytes += uint64(l.End.part(from, bytes))
	}
}

// Post implements groupsend.Poster.
func (l *InLane) Post(g groupsend.Group) {
	if t := l.domain.Tracer; t != nil {
		t.answering(l, g)
	}
	if l.Local != nil {
		l.Local.answers(g.Imm())
		return
	}
	count := l.domain.agent.Count
	count.AnswerGroups++
	count.AnswersSent += uint64(g.Count)
	l.Row.AnswerGroups++
	l.Row.Answers += uint64(g.Count)
	count.AnswerBytes += uint64(l.End.add(g))
}

// sent implements connectionEnd.
func (l *InLane) sent(id uint64) bool {
	if id <= l.End.done || id >= l.End.next {
		return false
	}
	l.End.complete(id)
	if l.answers.Pending() > 0 || len(l.End.wrs) > 0 {
		l.later() // in this cycle, which counts them
	}
	return false
}

// broken implements connectionEnd.
func (l *InLane) broken(c *fabric.Completion) { l.Fail("connection lost", cause(l.End.Endpoint, c)) }

// violation implements connectionEnd: it ends a lane whose requester's daemon breaks the protocol.
func (l *InLane) violation(what string) {
	l.domain.agent.Count.ProtocolErrors++
	if l.End != nil {
		l.Mirror.Store(0) // what it asks about requests would be worth no more
	}
	l.Fail(what, slots.ErrProtocol)
}

// Fail suspends the lane and tells the conductor.
func (l *InLane) Fail(what string, err error) {
	if l.End == nil {
		return
	}
	l.domain.agent.Count.LaneFailures++
	l.Row.Failures++
	l.Suspend()
	if l.OnBroken != nil {
		go l.OnBroken(laneError(what, err))
	}
}

// Suspend closes the fabric side and lets everything else be: requests are executed,
// with what they may do with regions, and their answers wait until the requester has
// come back and asked for them.
func (l *InLane) Suspend() {
	if l.End != nil {
		l.End.close(l.domain.agent)
		l.End = nil
	}
	if l.answers.Pending() > 0 {
		l.answers = groupsend.NewAnswers(l.geo, l.domain.agent.GroupMax)
	}
	l.soonest = 0 // of those
	for i := range l.records {
		l.records[i].owed = false
	}
}

// Down suspends the lane and gives its requests up, because their requester has given
// them an outcome. Those that no handler has started are dropped. Running handlers
// finish; their answers are dropped too, and their processes are to be told that nobody waits.
func (l *InLane) Down() (notices []Notice) {
	l.Suspend()
	l.revoke()
	l.Mirror.Store(0)
	var begun []int
	for i := range l.records {
		rec := &l.records[i]
		if !rec.active {
			continue
		}
		if rec.worker == 0 { // queued
			l.done(i, 0)
			continue
		}
		w := l.domain.Workers[rec.worker]
		if word := l.Ring.AnswerWord(i); l.Ring.Withdraw(i, word) {
			if w != nil {
				l.domain.recalled(w)
			}
			l.done(i, 0)
		} else if w != nil && !rec.oneway {
			begun = append(begun, i)
		}
	}
	l.domain.unqueue(l)
	return l.forsaken(begun)
}

// Fresh makes a lane that is down, and in which nothing is under way, one that knows of
// no request: the ring of a new incarnation of the peer starts with small tickets.
func (l *InLane) Fresh(mirror uint64) {
	l.Mirror.Store(mirror)
	clear(l.doomed)
	for i := range l.records {
		l.records[i].seen, l.records[i].done = false, false
		// A core that takes over goes by the answer words: one of a request with the
		// same ticket must not speak for a new one.
		l.Ring.Forget(i)
	}
	l.kept.Forget()
}

// Up connects the lane to a new endpoint.
func (l *InLane) Up(p *LaneEndpoint) error {
	l.End = p
	l.answers.SetUnordered(p.unordered)
	if err := p.start(l.domain.agent, l); err != nil {
		l.Suspend()
		return err
	}
	l.pay()
	return nil
}
