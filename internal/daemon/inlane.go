package daemon

import (
	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// inLane is the answering end of a lane: the mirror of the requester's ring, and
// a private record of each request in it. It belongs to the agent.
type inLane struct {
	domain  *agentDomain
	id      uint16
	geo     slots.Geometry
	ring    *slots.Ring
	records []record // by first slot
	covered []bool   // slots of active requests' runs
	busy    int      // active records
	answers *groupsend.Answers
	// pair is nil when the requester's node is gone, and always for a local
	// lane, whose answers go to local instead.
	pair  *endpointPair
	local *outLane
	// peer has the regions of the requester's node; nil for a local lane.
	peer *agentPeer
	// clock is what to add to the requester's clock to get this node's, in
	// nanoseconds.
	clock    int64
	again    bool // in domain.againIn
	onBroken func(error)
	// onQuiet is called once, if set, when the lane is down and no handler
	// uses its slots any more.
	onQuiet func()
}

// record is what this daemon knows of the request in a slot.
type record struct {
	active bool
	seen   bool // ticket is that of an earlier request
	oneway bool
	run    uint16
	worker uint16 // the service worker that has it; 0 for none
	method uint32
	answer uint32
	ticket uint64
	// grants are the regions that the handler may use; nil for none.
	grants *grants
}

func newInLane(d *agentDomain, id uint16, r *slots.Ring, groupMax int) *inLane {
	g := r.Geometry()
	return &inLane{
		domain: d, id: id, geo: g, ring: r,
		records: make([]record, g.Slots),
		covered: make([]bool, g.Slots),
		answers: groupsend.NewAnswers(g, groupMax),
	}
}

// immediate implements laneEnd: a group of requests has arrived.
func (l *inLane) immediate(imm uint32) {
	l.domain.agent.count.RequestGroupsReceived++
	l.deliver(groupsend.Imm(imm))
	if l.pair == nil {
		return // a bad request has just closed the lane
	}
	if err := l.pair.received(); err != nil {
		l.fail("receive not posted", err)
	}
}

// deliver hands the requests in the slots that imm names to service workers.
func (l *inLane) deliver(imm groupsend.Imm) {
	i := imm.Index()
	for range imm.Count() {
		run, ok := l.request(i)
		if !ok {
			return
		}
		i += run
	}
	if l.answers.Pending() > 0 { // some were refused
		l.later()
	}
}

// request records and dispatches the request in slot i and returns its run.
// False: it broke the protocol, and what follows cannot be found.
func (l *inLane) request(i int) (run int, ok bool) {
	if i >= l.geo.Slots {
		l.violation("a request beyond the ring")
		return 0, false
	}
	var h slots.Header
	clean := h.Decode(l.ring.HeaderAt(i))
	if l.local != nil {
		return l.localRequest(i, &h, clean), true
	}
	run = int(h.Run)
	if !clean || run < 1 || run > l.geo.MaxRun || run > l.geo.Slots-i {
		l.violation("a request with a damaged header")
		return 0, false
	}
	if err := h.CheckRequest(l.geo, run); err != nil {
		l.violation("a request that does not fit its slots")
		return 0, false
	}
	for j := i; j < i+run; j++ {
		if l.covered[j] {
			l.violation("a request over another that is not answered")
			return 0, false
		}
	}
	if rec := &l.records[i]; rec.seen && !slots.TicketNewer(h.Ticket, rec.ticket) {
		l.violation("a request that was seen before")
		return 0, false
	}
	l.accept(i, run, &h)
	return run, true
}

// localRequest is request for a local lane, where the journal of the out lane
// says what the request is, whatever has become of its header since.
func (l *inLane) localRequest(i int, h *slots.Header, clean bool) (run int) {
	e := &l.local.journal[i]
	run = e.word.Run()
	if !clean || h.Ticket != e.word.Ticket() || h.CheckRequest(l.geo, run) != nil {
		l.domain.agent.count.ProtocolErrors++
		l.local.outcome(i, slots.StatusNotExecuted, "the request was damaged in shared memory")
		return run
	}
	l.accept(i, run, h)
	return run
}

// accept records and dispatches a good request.
func (l *inLane) accept(i, run int, h *slots.Header) {
	l.domain.agent.count.RequestsReceived++
	l.records[i] = record{
		active: true, seen: true, run: h.Run, oneway: h.Kind == slots.KindOneWay,
		method: h.Method, answer: h.Answer, ticket: h.Ticket,
	}
	for j := i; j < i+run; j++ {
		l.covered[j] = true
	}
	l.busy++
	if h.Refs > 0 && !l.grant(i, run, int(h.Refs)) {
		return
	}
	if h.Deadline != 0 && l.local == nil {
		// The handler's process judges by this node's clock.
		h.Deadline += l.clock
		h.Encode(l.ring.HeaderAt(i))
	}
	if h.Deadline != 0 && shm.Nanotime() > h.Deadline {
		l.refuse(i, slots.StatusDeadline, "too late at the receiver")
		return
	}
	l.dispatch(i)
}

// dispatch gives the recorded request in slot i to a service worker, or queues
// it while all are full, or refuses it.
func (l *inLane) dispatch(i int) {
	rec := &l.records[i]
	m := l.domain.method(rec.method)
	if m == nil || len(m.workers) == 0 {
		l.refuse(i, slots.StatusNoService, "nobody serves it")
		return
	}
	w := m.pick(l.id)
	if w == nil || !l.give(i, w) {
		l.domain.agent.count.Queued++
		m.queue = append(m.queue, queued{l, i, rec.ticket})
	}
}

// give delivers the request in slot i to w. False: w has no room.
func (l *inLane) give(i int, w *agentWorker) bool {
	rec := &l.records[i]
	l.ring.Deliver(i, int(rec.run), w.id, rec.ticket)
	if !l.domain.hint(w, slots.MakeHint(l.id, i, rec.ticket)) {
		l.ring.Forget(i)
		return false
	}
	rec.worker = uint16(w.id)
	w.outstanding++
	return true
}

// finished takes the answer of slot i that worker w says to have finished.
func (l *inLane) finished(i int, w *agentWorker) bool {
	if i >= l.geo.Slots {
		return false
	}
	rec := &l.records[i]
	word := l.ring.AnswerWord(i)
	// SYNC POINT (answer in place): pairs with Ring.Finish.
	if !rec.active || int(rec.worker) != w.id || word != slots.MakeWord(slots.Done, int(rec.run), w.id, rec.ticket) {
		return false
	}
	if rec.grants != nil && rec.grants.holdBack() {
		return false
	}
	w.outstanding--
	var h slots.Header
	clean := h.Decode(l.ring.HeaderAt(i))
	err := h.CheckAnswer(l.geo, int(rec.run), rec.ticket)
	switch {
	case !clean || err != nil || h.Length > rec.answer && h.Flags&slots.FlagError == 0:
		l.domain.agent.count.ProtocolErrors++
		l.refuse(i, slots.StatusMaybeExecuted, "the handler's answer was damaged")
	default:
		l.done(i, h.Length)
	}
	l.later()
	return true
}

// refuse answers the recorded request in slot i with an error.
func (l *inLane) refuse(i int, status slots.Status, text string) {
	l.domain.agent.count.Refused++
	rec := &l.records[i]
	l.done(i, writeError(l.ring, i, int(rec.run), rec.ticket, status, text))
}

// done ends the record of slot i, whose answer of length bytes is in place.
func (l *inLane) done(i int, length uint32) {
	rec := &l.records[i]
	run := int(rec.run)
	// The answer word stays as it is: nobody looks at it without a record.
	rec.worker, rec.active = 0, false
	if g := rec.grants; g != nil {
		rec.grants = nil
		g.close()
	}
	for j := i; j < i+run; j++ {
		l.covered[j] = false
	}
	l.busy--
	if l.pair != nil || l.local != nil {
		l.answers.Add(i, run, length)
		return
	}
	if l.busy == 0 && l.onQuiet != nil {
		quiet := l.onQuiet
		l.onQuiet = nil
		go quiet()
	}
}

// later puts the lane on the list of those that send answers in this cycle.
func (l *inLane) later() {
	if !l.again {
		l.again = true
		l.domain.againIn = append(l.domain.againIn, l)
	}
}

// send posts finished answers in groups and returns how many.
func (l *inLane) send() int {
	limit := groupBudget(l.pair, l.local != nil)
	if limit == 0 {
		return 0 // down, or full: then sent() comes back here
	}
	n, more := l.answers.Plan(l, limit)
	if l.pair != nil {
		if err := l.pair.flush(); err != nil {
			l.fail("post failed", err)
			return n
		}
		more = more && l.pair.room() > 0
	}
	if more {
		l.later()
	}
	return n
}

// Part implements groupsend.Poster.
func (l *inLane) Part(from, bytes int) {
	if l.local == nil {
		l.domain.agent.count.AnswerBytes += uint64(l.pair.part(from, bytes))
	}
}

// Post implements groupsend.Poster.
func (l *inLane) Post(g groupsend.Group) {
	if l.local != nil {
		l.local.answers(g.Imm())
		return
	}
	count := &l.domain.agent.count
	count.AnswerGroups++
	count.AnswersSent += uint64(g.Count)
	count.AnswerBytes += uint64(l.pair.add(g))
}

// sent implements laneEnd.
func (l *inLane) sent(id uint64) {
	if id <= l.pair.done || id >= l.pair.next {
		return
	}
	l.pair.done = id
	if l.answers.Pending() > 0 || len(l.pair.wrs) > 0 {
		l.later()
	}
}

// broken implements laneEnd.
func (l *inLane) broken(c *fabric.Completion) { l.fail("connection lost", cause(l.pair.ep, c)) }

// violation ends a lane whose requester's daemon breaks the protocol.
func (l *inLane) violation(what string) {
	l.domain.agent.count.ProtocolErrors++
	l.fail(what, slots.ErrProtocol)
}

func (l *inLane) fail(what string, err error) {
	if l.pair == nil {
		return
	}
	l.domain.agent.count.LaneFailures++
	l.down()
	if l.onBroken != nil {
		go l.onBroken(laneError(what, err))
	}
}

// down closes the fabric side. Requests that no handler has started are dropped:
// their requester has given them an outcome. Running handlers finish; their
// answers are dropped too.
func (l *inLane) down() {
	if l.pair != nil {
		l.pair.close(l.domain.agent)
		l.pair = nil
	}
	l.answers = groupsend.NewAnswers(l.geo, l.domain.agent.groupMax)
	l.revoke()
	for i := range l.records {
		rec := &l.records[i]
		if !rec.active {
			continue
		}
		if rec.worker == 0 { // queued
			l.done(i, 0)
			continue
		}
		w := l.domain.workers[rec.worker]
		if word := l.ring.AnswerWord(i); l.ring.Withdraw(i, word) {
			if w != nil {
				w.outstanding--
			}
			l.done(i, 0)
		}
	}
	l.domain.unqueue(l)
}

// up connects the lane to a new endpoint. Nothing of the last connection comes
// again, and the ring of a new incarnation of the peer starts with small tickets.
func (l *inLane) up(p *endpointPair) error {
	for i := range l.records {
		l.records[i].seen = false
	}
	l.pair = p
	if err := p.start(l.domain.agent, l); err != nil {
		l.down()
		return err
	}
	return nil
}
