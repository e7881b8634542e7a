package agent

import (
	"math"
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// immediate implements connectionEnd: a group of requests has arrived.
func (l *InLane) immediate(imm uint32) {
	l.domain.agent.Count.RequestGroupsReceived++
	l.moved.groups++
	l.Row.Groups++
	l.Row.GroupSizes.Add(uint64(groupsend.Imm(imm).Count()))
	l.deliver(groupsend.Imm(imm))
	if l.End == nil {
		return // a bad request has just closed the lane
	}
	if err := l.End.received(); err != nil {
		l.Fail("receive not posted", err)
	}
}

// deliver hands the requests in the slots that imm names to service workers.
func (l *InLane) deliver(imm groupsend.Imm) {
	i := imm.Index()
	l.domain.now = shm.Nanotime()
	l.domain.judge()
	if t := l.domain.Tracer; t != nil {
		t.arriving(l, imm)
	}
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
func (l *InLane) request(i int) (run int, ok bool) {
	if i >= l.geo.Slots {
		l.violation("a request beyond the ring")
		return 0, false
	}
	var h slots.Header
	clean := h.Decode(l.Ring.HeaderAt(i))
	if l.Local != nil {
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
	if touches(l.covered, i, run) {
		l.violation("a request over another that is not answered")
		return 0, false
	}
	if l.answers.Overlaps(i, run) {
		l.violation("a request over another whose answer is not sent")
		return 0, false
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
func (l *InLane) localRequest(i int, h *slots.Header, clean bool) (run int) {
	e := &l.Local.journal[i]
	run = e.word.Run()
	if !clean || h.Ticket != e.word.Ticket() || h.CheckRequest(l.geo, run) != nil {
		l.domain.agent.Count.ProtocolErrors++
		l.domain.damage(true)
		l.Local.outcome(i, slots.StatusNotExecuted, "the request was damaged in shared memory")
		return run
	}
	h.From = uint16(e.word.Owner())
	l.accept(i, run, h)
	return run
}

// accept records and dispatches a good request.
func (l *InLane) accept(i, run int, h *slots.Header) {
	l.domain.agent.Count.RequestsReceived++
	l.moved.requests++
	l.Row.Requests++
	l.Row.Bytes += uint64(h.Length)
	if h.Deadline != 0 && l.Local == nil {
		// The handler's process judges by this node's clock. Before the record, so
		// that a later core does not do it again.
		h.Deadline = later(h.Deadline, l.Clock)
		h.Encode(l.Ring.HeaderAt(i))
		l.doubt(h.Deadline)
	}
	// In place: a record that is made elsewhere and copied makes the processor wait for
	// what it has just stored, in pieces that are smaller than it loads.
	rec := &l.records[i]
	rec.active, rec.seen, rec.oneway, rec.done, rec.owed = true, true, h.Kind == slots.KindOneWay, false, false
	rec.run, rec.worker, rec.to, rec.order, rec.from, rec.arrivalHigh = h.Run, 0, h.To, h.Order, h.From, 0
	rec.method, rec.answer, rec.arrival, rec.length, rec.ticket = h.Method, h.Answer, 0, 0, h.Ticket
	rec.refs, rec.grants, rec.deadline, rec.at = h.Refs > 0, nil, h.Deadline, l.domain.agent.stamp
	rec.alone = h.Flags&slots.FlagPart == 0 && h.Refs == 0 && h.Order == 0 && h.To == 0
	if h.Order != 0 {
		l.domain.arrivals++
		rec.arrivedAs(l.domain.arrivals)
	}
	l.kept.Accept(i, &vault.Record{
		Ticket: h.Ticket, Run: h.Run, To: h.To, From: h.From, Order: h.Order, Arrival: rec.arrival,
		Method: h.Method, Answer: h.Answer, OneWay: rec.oneway, Refs: rec.refs,
	})
	l.note(i)
	if h.Flags&slots.FlagCancel != 0 {
		l.cancels(i)
		return
	}
	if len(l.doomed) > 0 && l.isDoomed(i) && l.forsake(i) {
		return
	}
	if h.Refs > 0 && !l.grant(i, run, int(h.Refs)) {
		return
	}
	if h.Deadline != 0 && l.domain.now > h.Deadline {
		l.refuse(i, slots.StatusDeadline, "too late at the receiver")
		return
	}
	l.dispatch(i)
}

// note counts the recorded request in slot i.
func (l *InLane) note(i int) {
	for j := i; j < i+int(l.records[i].run); j++ {
		l.covered[j] = true
	}
	l.Busy++
	l.domain.underWay++
	l.Row.Busy++
	l.Row.BusySlots += uint64(l.records[i].run)
	l.opened(i)
}

const (
	// clockAge is after what time the clocks of two nodes are compared again when requests with deadlines come,
	// and doubtAge when one comes too late: perhaps its node's clock has stood still.
	clockAge = int64(10 * time.Second)
	doubtAge = int64(time.Second)
)

// doubt has the clocks compared again if that is due; a request has come with a deadline.
func (l *InLane) doubt(deadline int64) {
	now := l.domain.now
	if age := now - l.Compared; age < doubtAge || age < clockAge && deadline >= now {
		return
	}
	l.Compared = now
	if l.OnDoubt != nil {
		l.OnDoubt()
	}
}

// later moves a deadline, which is not 0, by the distance of another clock. Both come from others: what
// is no number of nanoseconds afterwards is as far away as one can be.
func later(deadline, by int64) int64 {
	sum := deadline + by
	switch {
	case by > 0 && sum < deadline:
		return math.MaxInt64
	case by < 0 && sum > deadline:
		return math.MinInt64
	case sum == 0:
		return 1 // 0 is never
	}
	return sum
}
