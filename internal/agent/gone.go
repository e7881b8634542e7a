package agent

import (
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Notice is what a service process is told of a caller that is gone.
type Notice struct {
	Worker *Worker
	Lane   uint16
	Caller uint16
	// At is the time of the notice by CLOCK_MONOTONIC: what the caller began is older, and
	// what another one begins that has the same id is younger.
	At int64
	// Calls are those of the caller's requests that the process has begun with.
	Calls []SentRequest
}

// Gone deals with the end of a caller: list are its requests that its node waits for.
// Those that no handler has started on are answered, and those that have not arrived will
// be when they do. The others are left to their processes, which are to be told, and so
// are those that may have an exchange with it. Requests with an order keep their places.
func (l *InLane) Gone(caller uint16, list []SentRequest) (notices []Notice) {
	at := shm.Nanotime()
	begun := map[*Worker][]SentRequest{}
	for _, s := range list {
		rec := &l.records[s.index]
		switch {
		case !rec.seen || slots.TicketNewer(s.ticket, rec.ticket):
			if l.doomed == nil {
				l.doomed = make(map[int]uint64)
			}
			l.doomed[s.index] = s.ticket
		case !rec.active || rec.ticket != s.ticket || rec.from != caller || rec.oneway:
			// Answered, or none of its.
		case l.forsake(s.index):
			faultpoint.Here("gone.dropped")
		default:
			if w := l.domain.Workers[rec.worker]; rec.worker != 0 && w != nil {
				begun[w] = append(begun[w], s)
			}
		}
	}
	for w, calls := range begun {
		notices = append(notices, Notice{w, l.id, caller, at, calls})
	}
	for _, w := range l.domain.present {
		if parts := l.parts[w]; begun[w] == nil && w.Ops != nil && (w.Stale || parts != nil && parts.Has(caller)) {
			notices = append(notices, Notice{Worker: w, Lane: l.id, Caller: caller, At: at})
		}
	}
	for _, parts := range l.parts {
		parts.drop(caller)
	}
	return notices
}

// forsaken tells the processes that have begun with the requests in the given slots, or may have
// exchanges by the lane, that all its callers are gone.
func (l *InLane) forsaken(begun []int) (notices []Notice) {
	at := shm.Nanotime()
	type pair struct {
		worker *Worker
		caller uint16
	}
	calls := map[pair][]SentRequest{}
	for _, i := range begun {
		rec := &l.records[i]
		p := pair{l.domain.Workers[rec.worker], rec.from}
		calls[p] = append(calls[p], SentRequest{index: i, ticket: rec.ticket})
	}
	for w, parts := range l.parts {
		for _, caller := range parts.all() {
			if p := (pair{w, caller}); calls[p] == nil {
				calls[p] = []SentRequest{}
			}
		}
	}
	clear(l.parts)
	for p, list := range calls {
		notices = append(notices, Notice{p.worker, l.id, p.caller, at, list})
	}
	return notices
}

// forsake answers the recorded request in slot i, whose caller is gone, unless its
// handler has started or it has an order.
func (l *InLane) forsake(i int) bool {
	rec := &l.records[i]
	if rec.order != 0 || !l.recall(i) {
		return false
	}
	l.domain.agent.Count.Forsaken++
	l.refuse(i, slots.StatusNotExecuted, "its caller is gone")
	l.later()
	return true
}

// recalled notes that a request was taken back from w, which makes room for one that waits for its turn.
func (d *Domain) recalled(w *Worker) {
	w.outstanding--
	w.recalled++
	d.roomier = true
}

// recall takes the recorded request in slot i back from the process that has it, if any.
// False: its handler has started.
func (l *InLane) recall(i int) bool {
	rec := &l.records[i]
	if rec.grants != nil && rec.grants.dying {
		return false // its handler had it, and is dead
	}
	if rec.worker == 0 {
		return true
	}
	if !l.Ring.Withdraw(i, l.Ring.AnswerWord(i)) {
		return false
	}
	if w := l.domain.Workers[rec.worker]; w != nil {
		l.domain.recalled(w)
	}
	l.unassign(i)
	return true
}

// isDoomed reports whether the request that has just been recorded in slot i is one whose
// caller was gone before it arrived, and forgets that.
func (l *InLane) isDoomed(i int) bool {
	ticket, ok := l.doomed[i]
	if !ok {
		return false
	}
	rec := &l.records[i]
	if ticket == rec.ticket || slots.TicketNewer(rec.ticket, ticket) {
		delete(l.doomed, i)
	}
	return ticket == rec.ticket && !rec.oneway && rec.order == 0
}

// exchanges notes that w may have an exchange with the caller.
func (l *InLane) exchanges(w *Worker, caller uint16) {
	parts := l.parts[w]
	if parts == nil {
		if l.parts == nil {
			l.parts = make(map[*Worker]*CallerSet)
		}
		parts = new(CallerSet)
		l.parts[w] = parts
	}
	parts.add(caller)
}
