package agent

import (
	"sync/atomic"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/sharing"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// OutLane is the requesting end of a lane: the ring that workers of this node
// fill, and the journal of what was taken from it. It belongs to the agent.
type OutLane struct {
	domain  *Domain
	id      uint16
	geo     slots.Geometry
	Ring    *slots.Ring
	Plan    *groupsend.Requests
	journal []entry
	// kept is the journal as a later core will find it, and Mirror what the other end
	// is called that the requests were sent to; 0 if none waits for it.
	// Closed is not 0 while the lane is down: nothing waits in it, or a later core has
	// to see to that.
	kept    *vault.Journal
	Mirror  *atomic.Uint64
	Closed  *atomic.Uint64
	covered []bool // slots of the runs in the journal
	busy    int    // entries in the journal
	seq     uint32 // of the last entry
	Sharing *sharing.Ring
	// crest is the most slots that have been in the journal lately, and round where claims were at the beginning of
	// this round.
	crest int
	round uint64
	// End is nil while the lane is suspended or down, and always for a local lane,
	// whose requests go to Local instead.
	End   *LaneEndpoint
	Local *InLane
	// Peer has the regions that the other node knows; nil for a local lane. Plain: that
	// node does not know slots.FlagCarry.
	Peer  *Peer
	Plain bool
	// Adopting: nothing new is sent, because what the last core has taken is not dispatched again
	// yet, and requests of an order keep it.
	Adopting bool
	// deferred are answers that came before the completion of their request's
	// group: their slots stay until that has arrived too.
	deferred []int
	// resend are the journalled requests that the peer has not seen, oldest first.
	resend []int
	moved  traffic
	again  bool // in Domain.againOut
	// Row is what is counted of the lane. held is when the agent first saw what it could
	// not send, 0 for nothing.
	Row  *counters.Lane
	held int64
	// delay holds groups back. delayed: in Domain.delayed. Draining: none any more.
	delay    groupsend.Delay
	delayed  bool
	Draining bool
	freed    int // slots freed in this cycle; if any, the lane is in Domain.freed
	// OnBroken is as that of an InLane.
	OnBroken func(error)
	// aged are the answers that the last look has found; nil before the first.
	aged []slots.Word
	// blamed are the words for which misused has counted somebody, by their slots.
	blamed map[int]slots.Word
	// lastSent is the word of the last request in each slot that was sent, 0 for none, and before the one that the last Admit has
	// replaced there.
	lastSent []slots.Word
	before   slots.Word
}

// NewOutLane makes a lane that is down, or local.
func NewOutLane(d *Domain, id uint16, r *slots.Ring, v *vault.Vault, groupMax int) *OutLane {
	g := r.Geometry()
	return &OutLane{
		domain: d, id: id, geo: g, Ring: r, Row: new(counters.Lane), kept: v.Journal, Mirror: v.Mirror, Closed: v.Closed,
		Plan:     groupsend.NewRequests(r, groupMax),
		journal:  make([]entry, g.Slots),
		covered:  make([]bool, g.Slots),
		blamed:   make(map[int]slots.Word),
		lastSent: make([]slots.Word, g.Slots),
		Sharing:  sharing.New(r),
		delay:    groupsend.NewRequestDelay(d.agent.delay.limit, groupMax),
	}
}

// Send takes what is published and posts it. It returns how many requests it took.
func (l *OutLane) Send() int {
	limit := groupBudget(l.End, l.Local != nil)
	if limit == 0 || l.Adopting {
		l.delay.Late()
		l.noRoom()
		return 0 // suspended, down, not adopted yet, or full: then sent() comes back here
	}
	if len(l.resend) > 0 {
		if l.End.unordered {
			// One at a time: requests of an order must not overtake each other.
			if limit = 1; l.End.underWay() {
				if err := l.End.flush(); err != nil { // there may have been no room
					l.Fail("post failed", err)
				}
				return 0 // sent() comes back here
			}
		}
		// Before anything else: requests of an order keep it.
		if limit = l.sendAgain(limit); limit == 0 || l.End == nil || l.End.unordered && l.End.underWay() {
			return 1
		}
	}
	if held, work := l.holdBack(); held {
		l.seen()
		return work
	}
	n, more := l.Plan.Plan(l, limit)
	l.delay.Sent(more)
	l.held = 0
	l.rewind()
	if l.End != nil {
		if err := l.End.flush(); err != nil {
			l.Fail("post failed", err)
			return n
		}
		more = more && l.End.room() > 0
	}
	if more && !l.again {
		l.again = true
		l.domain.againOut = append(l.domain.againOut, l)
	}
	if more {
		n = max(n, 1) // nothing taken, much refused: the agent must not sleep
	}
	return n
}

// Admit implements groupsend.Clerk: it journals a good request and refuses
// another with an outcome for its worker.
func (l *OutLane) Admit(i int, w slots.Word, h *slots.Header, bad error) groupsend.Verdict {
	if bad != nil {
		known := l.misused(i, w, h == nil)
		if h != nil && !touches(l.covered, i, w.Run()) {
			l.refuse(i, w, h.Kind, slots.StatusInvalid, bad.Error())
			return groupsend.Refuse
		}
		return known
	}
	if touches(l.covered, i, w.Run()) {
		// A worker has overwritten the words of slots that are on the wire. The
		// peer would take this for a fault of ours; it waits for the answers.
		return l.misused(i, w, true)
	}
	if last := l.lastSent[i]; last != 0 && !slots.TicketNewer(w.Ticket(), last.Ticket()) {
		// Each claim makes the ticket newer. The peer would take this, too, for a fault of ours. Perhaps the request is good, and it
		// is the word it was claimed from that a worker has overwritten: it has an outcome for that.
		l.misused(i, w, true)
		delete(l.blamed, i) // the word is taken now: the next time is another one
		l.refuse(i, w, h.Kind, slots.StatusMaybeExecuted, "the slot's word was overwritten by a process of the domain")
		return groupsend.Refuse
	}
	if h.From != 0 && int(h.From) != w.Owner() {
		l.misused(i, w, false)
		l.refuse(i, w, h.Kind, slots.StatusInvalid, "the request says to be another process's")
		return groupsend.Refuse
	}
	if h.Flags&slots.FlagCarry != 0 && l.Plain {
		l.refuse(i, w, h.Kind, slots.StatusInvalid, "the peer does not know what may go with a request")
		return groupsend.Refuse
	}
	if h.Deadline != 0 && l.domain.agent.now > h.Deadline {
		l.refuse(i, w, h.Kind, slots.StatusDeadline, "too late at the sender")
		return groupsend.Refuse
	}
	if why := l.excess(i, w); why != "" {
		l.refuse(i, w, h.Kind, slots.StatusNotExecuted, why)
		return groupsend.Refuse
	}
	var e entry
	e.oneway, e.quiet, e.word, e.answer = h.Kind == slots.KindOneWay, h.Flags&slots.FlagCancel != 0, w, h.Answer
	if l.End != nil {
		e.wr = l.End.next
	}
	if h.Refs > 0 {
		var status slots.Status
		var why string
		if e.held, status, why = l.domain.refersTo(l.Ring, i, w.Run(), w.Owner(), int(h.Refs), l.Peer); e.held == nil {
			l.refuse(i, w, h.Kind, status, why)
			return groupsend.Refuse
		}
	}
	if l.Local == nil && h.To != 0 && h.Refs == 0 {
		l.domain.agent.company.met++ // of a stream, for example
	}
	l.enter(i, &e)
	l.before, l.lastSent[i] = l.lastSent[i], w
	return groupsend.Send
}

// Withdrawn implements groupsend.Clerk. It is about the last request that was admitted.
func (l *OutLane) Withdrawn(i int) {
	l.strike(i)
	l.lastSent[i] = l.before
}

// Part implements groupsend.Poster.
func (l *OutLane) Part(from, bytes int) {
	if l.Local == nil {
		n := uint64(l.End.part(from, bytes))
		l.domain.agent.Count.RequestBytes += n
		l.Row.Bytes += n
	}
}

// Post implements groupsend.Poster.
func (l *OutLane) Post(g groupsend.Group) {
	if t := l.domain.Tracer; t != nil {
		t.posting(l, g)
	}
	count := l.domain.agent.Count
	l.moved.groups++
	l.moved.requests += uint64(g.Count)
	l.countGroup(g)
	if l.Local != nil {
		count.LocalRequests += uint64(g.Count)
		l.Local.deliver(g.Imm())
		return
	}
	count.RequestGroups++
	count.RequestsSent += uint64(g.Count)
	n := uint64(l.End.add(g))
	count.RequestBytes += n
	l.Row.Bytes += n
}

// refuse answers a published request that is not sent.
func (l *OutLane) refuse(i int, w slots.Word, kind slots.Kind, status slots.Status, text string) {
	l.enter(i, &entry{word: w, oneway: kind == slots.KindOneWay})
	if !l.Ring.Take(i, w) {
		l.strike(i) // revoked meanwhile: no longer ours
		return
	}
	l.domain.agent.Count.Refused++
	l.outcome(i, status, text)
}

// outcome gives a journalled request an outcome that this daemon decides.
func (l *OutLane) outcome(i int, status slots.Status, text string) {
	e := l.journal[i]
	if !e.quiet {
		l.Row.Outcomes.Add(uint32(status))
	}
	l.kept.Failing(i, status)
	writeError(l.Ring, i, e.word.Run(), e.word.Ticket(), status, text)
	switch status {
	case slots.StatusMaybeExecuted:
		l.domain.agent.Count.MaybeExecuted++
	default:
		l.domain.agent.Count.NotExecuted++
	}
	if e.oneway {
		l.domain.agent.Count.OneWayFailed++
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
// for it. The journal's part is the last: a later core finishes what it finds there.
func (l *OutLane) settle(i int) {
	e := &l.journal[i]
	l.domain.Looks.traffic = true
	w := l.domain.Workers[e.word.Owner()]
	switch {
	case e.oneway:
		if !e.quiet {
			l.domain.agent.Count.OneWayDone++
		}
		l.kept.Freeing(i)
		l.free(i, e.word.Run())
	case w == nil || w.Gone:
		l.domain.agent.Count.Orphans++
		l.kept.Freeing(i)
		l.free(i, e.word.Run())
	case !l.Ring.Answer(i, e.word):
		// A worker of the domain overwrote the word.
		l.domain.agent.Count.ProtocolErrors++
		l.domain.damage(true)
	case !l.domain.hint(w, slots.MakeHint(l.id, i, e.word.Ticket())):
		w.Rings.SetOverflow()
	}
	posted := e.oneway
	l.strike(i)
	switch {
	case w == nil:
		l.domain.consoling = true
	case posted && !w.Gone:
		l.freedFor(w, e.word.Run())
	}
}

// free frees a run. Who waits for free slots is woken once, at the end of the cycle.
func (l *OutLane) free(i, run int) {
	l.Ring.Free(i, run)
	if l.freed == 0 {
		l.domain.freed = append(l.domain.freed, l)
	}
	l.freed += run
}

// immediate implements connectionEnd: a group of answers has arrived.
func (l *OutLane) immediate(imm uint32) {
	l.domain.agent.Count.AnswerGroupsReceived++
	l.Row.AnswerGroups++
	l.answers(groupsend.Imm(imm))
	if l.End == nil {
		return // a bad answer has just closed the lane
	}
	if err := l.End.received(); err != nil {
		l.Fail("receive not posted", err)
	}
}

// answers settles the requests whose answers lie in the slots that imm names.
// The peer may say anything: every answer is checked against the journal.
func (l *OutLane) answers(imm groupsend.Imm) {
	if t := l.domain.Tracer; t != nil {
		t.answered(l, imm)
	}
	i := imm.Index()
	for range imm.Count() {
		if i >= l.geo.Slots || !l.journal[i].taken || l.journal[i].answered {
			l.violation("an answer for a slot that waits for none")
			return
		}
		e := &l.journal[i]
		var h slots.Header
		ok := h.Decode(l.Ring.HeaderAt(i))
		err := h.CheckAnswer(l.geo, e.word.Run(), e.word.Ticket())
		run := e.word.Run()
		if !ok || err != nil || !h.Fits(e.answer) {
			l.violation("an answer that does not fit its request")
			if l.Local == nil {
				return
			}
			// A worker of this node has damaged it since the in lane looked.
			l.domain.damage(true)
			l.outcome(i, slots.StatusMaybeExecuted, "the answer was damaged in shared memory")
			i += run
			continue
		}
		l.domain.agent.Count.AnswersReceived++
		l.countAnswer(e, h.Status)
		if l.Local == nil && e.held == nil && h.Flags&slots.FlagPart == 0 {
			l.domain.agent.company.met++
		}
		if h.Status != slots.StatusOK && e.oneway {
			l.domain.agent.Count.OneWayFailed++
		}
		if l.End != nil && e.wr > l.End.done {
			e.answered = true
			l.deferred = append(l.deferred, i)
		} else {
			l.settle(i)
		}
		i += run
	}
}

// sent implements connectionEnd.
func (l *OutLane) sent(id uint64) bool {
	if id <= l.End.done || id >= l.End.next {
		return false
	}
	l.End.complete(id)
	if t := l.domain.Tracer; t != nil {
		t.completed(l, id)
	}
	settled := len(l.deferred) > 0
	if settled {
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
	return l.Send() > 0 || settled
}

// landed reports whether the journalled request in slot i has arrived, or goes with the
// group that is being made.
func (l *OutLane) landed(i int) bool {
	e := &l.journal[i]
	return l.End == nil || !e.taken || e.wr <= l.End.done || e.wr == l.End.next
}

// sweep frees what a dead worker held and no answer is expected for, and what has been written in the name of nobody
// who is there: that is never sent, and the process that has written it may just have died. One-way messages that are
// published stay until they can be sent.
func (l *OutLane) sweep(owner int) {
	nobodys := func(id int) bool { return id == owner || l.domain.Workers[id] == nil }
	freed := l.Ring.Sweep(nobodys, func(i int) bool { return l.journal[i].taken || l.posted(i) })
	l.domain.agent.Count.Swept += uint64(freed)
	if freed > 0 {
		l.Ring.WakeFree()
	}
}

// posted reports whether a one-way message is published in slot i and will be sent.
func (l *OutLane) posted(i int) bool {
	w := l.Ring.Word(i)
	return w.State() == slots.Pub && slots.GlanceKind(l.Ring.HeaderAt(i)) == slots.KindOneWay &&
		l.Ring.State() != slots.LaneClosed && l.Ring.CheckRun(i, w) == nil
}
