package daemon

import (
	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// outLane is the requesting end of a lane: the ring that workers of this node
// fill, and the journal of what was taken from it. It belongs to the agent.
type outLane struct {
	domain  *agentDomain
	id      uint16
	geo     slots.Geometry
	ring    *slots.Ring
	plan    *groupsend.Requests
	journal []entry
	covered []bool // slots of the runs in the journal
	busy    int    // entries in the journal
	// pair is nil while the lane is down, and always for a local lane, whose
	// requests go to local instead.
	pair  *endpointPair
	local *inLane
	// peer has the regions that the other node knows; nil for a local lane.
	peer *agentPeer
	// deferred are answers that came before the completion of their request's
	// group: their slots stay until that has arrived too.
	deferred []int
	again    bool // in domain.againOut
	freed    bool // in domain.freed
	onBroken func(error)
}

// entry is what the journal holds of a request that was taken: private memory,
// so that nothing a worker or a peer writes can change it.
type entry struct {
	taken  bool
	oneway bool
	// answered: the answer is here and waits in deferred.
	answered bool
	word     slots.Word
	answer   uint32 // the largest answer the requester takes
	method   uint32
	wr       uint64 // the work request that carries it
	// held are the regions that it refers to; nil for none.
	held *held
}

func newOutLane(d *agentDomain, id uint16, r *slots.Ring, groupMax int) *outLane {
	g := r.Geometry()
	return &outLane{
		domain: d, id: id, geo: g, ring: r,
		plan:    groupsend.NewRequests(r, groupMax),
		journal: make([]entry, g.Slots),
		covered: make([]bool, g.Slots),
	}
}

// enter puts a request into the journal.
func (l *outLane) enter(i int, e entry) {
	l.journal[i] = e
	l.busy++
	l.cover(i, e.word.Run(), true)
}

// strike takes a request out of the journal.
func (l *outLane) strike(i int) entry {
	e := l.journal[i]
	l.journal[i] = entry{}
	if e.held != nil {
		l.domain.letGo(e.held)
	}
	l.busy--
	l.cover(i, e.word.Run(), false)
	return e
}

func (l *outLane) cover(i, run int, on bool) {
	for j := i; j < i+run; j++ {
		l.covered[j] = on
	}
}

// send takes what is published and posts it. It returns how many requests it took.
func (l *outLane) send() int {
	limit := groupBudget(l.pair, l.local != nil)
	if limit == 0 {
		return 0 // down, or full: then sent() comes back here
	}
	n, more := l.plan.Plan(l, limit)
	if l.pair != nil {
		if err := l.pair.flush(); err != nil {
			l.fail("post failed", err)
			return n
		}
		more = more && l.pair.room() > 0
	}
	if more && !l.again {
		l.again = true
		l.domain.againOut = append(l.domain.againOut, l)
	}
	return n
}

// Admit implements groupsend.Clerk: it journals a good request and refuses
// another with an outcome for its worker.
func (l *outLane) Admit(i int, w slots.Word, h *slots.Header, bad error) bool {
	count := &l.domain.agent.count
	if bad != nil {
		count.ProtocolErrors++
		if h != nil && !l.overlaps(i, w.Run()) {
			l.refuse(i, w, slots.StatusInvalid, bad.Error())
		}
		return false
	}
	if l.overlaps(i, w.Run()) {
		// A worker has overwritten the words of slots that are on the wire. The
		// peer would take this for a fault of ours; it waits for the answers.
		count.ProtocolErrors++
		return false
	}
	if h.Deadline != 0 && shm.Nanotime() > h.Deadline {
		l.refuse(i, w, slots.StatusDeadline, "too late at the sender")
		return false
	}
	e := entry{taken: true, oneway: h.Kind == slots.KindOneWay, word: w, answer: h.Answer, method: h.Method}
	if l.pair != nil {
		e.wr = l.pair.next
	}
	if h.Refs > 0 {
		var status slots.Status
		var why string
		if e.held, status, why = l.domain.refersTo(l.ring, i, w.Run(), w.Owner(), int(h.Refs), l.peer); e.held == nil {
			l.refuse(i, w, status, why)
			return false
		}
	}
	l.enter(i, e)
	return true
}

// overlaps reports whether the run at i touches one in the journal.
func (l *outLane) overlaps(i, run int) bool {
	for j := i; j < i+run; j++ {
		if l.covered[j] {
			return true
		}
	}
	return false
}

// Withdrawn implements groupsend.Clerk.
func (l *outLane) Withdrawn(i int) { l.strike(i) }

// Part implements groupsend.Poster.
func (l *outLane) Part(from, bytes int) {
	if l.local == nil {
		l.domain.agent.count.RequestBytes += uint64(l.pair.part(from, bytes))
	}
}

// Post implements groupsend.Poster.
func (l *outLane) Post(g groupsend.Group) {
	count := &l.domain.agent.count
	if l.local != nil {
		count.LocalRequests += uint64(g.Count)
		l.local.deliver(g.Imm())
		return
	}
	count.RequestGroups++
	count.RequestsSent += uint64(g.Count)
	count.RequestBytes += uint64(l.pair.add(g))
}

// refuse answers a published request that is not sent.
func (l *outLane) refuse(i int, w slots.Word, status slots.Status, text string) {
	if !l.ring.Take(i, w) {
		return // revoked meanwhile: no longer ours
	}
	l.domain.agent.count.Refused++
	l.enter(i, entry{taken: true, word: w, oneway: slots.Kind(l.ring.HeaderAt(i)[14]) == slots.KindOneWay})
	l.outcome(i, status, text)
}

// outcome gives a journalled request an outcome that this daemon decides.
func (l *outLane) outcome(i int, status slots.Status, text string) {
	e := l.journal[i]
	writeError(l.ring, i, e.word.Run(), e.word.Ticket(), status, text)
	switch status {
	case slots.StatusMaybeExecuted:
		l.domain.agent.count.MaybeExecuted++
	default:
		l.domain.agent.count.NotExecuted++
	}
	if e.oneway {
		l.domain.agent.count.OneWayFailed++
	}
	l.settle(i)
}

// writeError writes an error answer into the run at slot i.
func writeError(r *slots.Ring, i, run int, ticket uint64, status slots.Status, text string) (length uint32) {
	n := copy(r.PayloadAt(i, run), text)
	h := slots.Header{Ticket: ticket, Run: uint16(run), Length: uint32(n), Kind: slots.KindAnswer, Flags: slots.FlagError, Status: status}
	h.Encode(r.HeaderAt(i))
	return uint32(n)
}

// settle hands the answered slot i to its owner, or frees it if nobody waits
// for it.
func (l *outLane) settle(i int) {
	e := l.strike(i)
	w := l.domain.workers[e.word.Owner()]
	switch {
	case e.oneway:
		l.domain.agent.count.OneWayDone++
		l.free(i, e.word.Run())
	case w == nil || w.gone:
		l.domain.agent.count.Orphans++
		l.free(i, e.word.Run())
	case !l.ring.Answer(i, e.word):
		// A worker of the domain overwrote the word.
		l.domain.agent.count.ProtocolErrors++
	case !l.domain.hint(w, slots.MakeHint(l.id, i, e.word.Ticket())):
		w.rings.SetOverflow()
	}
}

// free frees a run. Who waits for free slots is woken once, at the end of the cycle.
func (l *outLane) free(i, run int) {
	l.ring.Free(i, run)
	if !l.freed {
		l.freed = true
		l.domain.freed = append(l.domain.freed, l)
	}
}

// immediate implements laneEnd: a group of answers has arrived.
func (l *outLane) immediate(imm uint32) {
	l.domain.agent.count.AnswerGroupsReceived++
	l.answers(groupsend.Imm(imm))
	if l.pair == nil {
		return // a bad answer has just closed the lane
	}
	if err := l.pair.received(); err != nil {
		l.fail("receive not posted", err)
	}
}

// answers settles the requests whose answers lie in the slots that imm names.
// The peer may say anything: every answer is checked against the journal.
func (l *outLane) answers(imm groupsend.Imm) {
	i := imm.Index()
	for range imm.Count() {
		if i >= l.geo.Slots || !l.journal[i].taken || l.journal[i].answered {
			l.violation("an answer for a slot that waits for none")
			return
		}
		e := &l.journal[i]
		var h slots.Header
		ok := h.Decode(l.ring.HeaderAt(i))
		err := h.CheckAnswer(l.geo, e.word.Run(), e.word.Ticket())
		run := e.word.Run()
		if !ok || err != nil || h.Length > e.answer && h.Flags&slots.FlagError == 0 {
			l.violation("an answer that does not fit its request")
			if l.local == nil {
				return
			}
			// A worker of this node has damaged it since the in lane looked.
			l.outcome(i, slots.StatusMaybeExecuted, "the answer was damaged in shared memory")
			i += run
			continue
		}
		l.domain.agent.count.AnswersReceived++
		if h.Status != slots.StatusOK && e.oneway {
			l.domain.agent.count.OneWayFailed++
		}
		if l.pair != nil && e.wr > l.pair.done {
			e.answered = true
			l.deferred = append(l.deferred, i)
		} else {
			l.settle(i)
		}
		i += run
	}
}

// sent implements laneEnd.
func (l *outLane) sent(id uint64) {
	if id <= l.pair.done || id >= l.pair.next {
		return
	}
	l.pair.done = id
	if len(l.deferred) > 0 {
		later := l.deferred[:0]
		for _, i := range l.deferred {
			if l.journal[i].wr > id {
				later = append(later, i)
			} else {
				l.settle(i)
			}
		}
		l.deferred = later
	}
	// Room again: what waited for it goes out.
	l.domain.work += l.send()
}

// broken implements laneEnd.
func (l *outLane) broken(c *fabric.Completion) { l.fail("connection lost", cause(l.pair.ep, c)) }

// violation ends a lane whose peer breaks the protocol. A local lane goes on.
func (l *outLane) violation(what string) {
	l.domain.agent.count.ProtocolErrors++
	l.fail(what, slots.ErrProtocol)
}

// fail takes the lane down and tells the conductor.
func (l *outLane) fail(what string, err error) {
	if l.pair == nil {
		return
	}
	l.domain.agent.count.LaneFailures++
	l.down(what)
	if l.onBroken != nil {
		go l.onBroken(laneError(what, err))
	}
}

// down closes the fabric side and gives every request in the ring an outcome:
// what was sent may have been executed, what was only published was not.
func (l *outLane) down(why string) {
	if l.pair != nil {
		l.pair.close(l.domain.agent)
		l.pair = nil
	}
	for _, i := range l.deferred {
		l.settle(i) // nothing can land in its slots any more
	}
	l.deferred = l.deferred[:0]
	// SYNC POINT (lane closed): stored before the last look at the words; a
	// worker publishes before it looks at the state.
	l.ring.SetState(slots.LaneClosed)
	for i := range l.journal {
		if l.journal[i].taken {
			l.outcome(i, slots.StatusMaybeExecuted, why)
		}
	}
	for i := range l.journal {
		if w := l.ring.Word(i); w.State() == slots.Pub && l.ring.CheckRun(i, w) == nil {
			l.refuse(i, w, slots.StatusNotExecuted, why)
		}
	}
	l.ring.WakeFree()
}

// up connects the lane to a new endpoint.
func (l *outLane) up(p *endpointPair) error {
	l.pair = p
	if err := p.start(l.domain.agent, l); err != nil {
		l.down("cannot start")
		return err
	}
	l.plan.Rescan()
	l.ring.SetState(slots.LaneOpen)
	return nil
}

// sweep frees what a dead worker held and no answer is expected for.
func (l *outLane) sweep(owner int) {
	freed := l.ring.Sweep(owner, func(i int) bool { return l.journal[i].taken })
	l.domain.agent.count.Swept += uint64(freed)
	if freed > 0 {
		l.ring.WakeFree()
	}
}
