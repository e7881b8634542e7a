package agent

import (
	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/stages"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

const (
	// maxTraceKeys is how many peers' traces a domain takes part in at once.
	maxTraceKeys = 16
	// maxPeerKeys is how many of them may be one peer's, which needs one for each of its domains.
	maxPeerKeys = maxTraceKeys / 2
)

// traceKey is the key of a peer whose requests are followed here, until a time.
type traceKey struct {
	peer  string
	key   uint32
	until int64
}

// heardTrace is a request that is followed, at its handler's node. Times are by
// CLOCK_MONOTONIC, 0 for not yet or unknown.
type heardTrace struct {
	mark   uint64
	Lane   *InLane
	slot   int
	ticket uint64
	// arrived is when it came; queued: there was nobody for it.
	arrived int64
	queued  bool
	// given is when a process was woken for it, the last one if there were several, and
	// picked when it was first seen to have begun.
	given, picked int64
	worker        uint16
	process       TraceProcess
	again         int
	// collected is when its answer was first seen, posted when that was handed to the
	// provider, in a group of so many.
	collected, posted int64
	answers           int
	// began and ended are the handler's.
	began, ended int64
}

// hears reports whether requests of peers are followed.
func (t *Tracer) hears() bool {
	for _, k := range &t.keys {
		if k.key != 0 {
			return true
		}
	}
	return false
}

// expects reports whether requests of the lane with the mark are followed here.
func (t *Tracer) expects(l *InLane, mark uint64, now int64) bool {
	key := slots.MarkKey(mark)
	if l.Local != nil {
		return key == t.Key
	}
	for i := range t.keys {
		if k := &t.keys[i]; k.key == key && k.until > now && l.Peer != nil && k.peer == l.Peer.Name {
			return true
		}
	}
	return false
}

// arriving notes the requests of a group that has arrived and was not looked at yet: the
// headers may say anything.
func (t *Tracer) arriving(l *InLane, imm groupsend.Imm) {
	now := l.domain.now
	i := imm.Index()
	for range imm.Count() {
		if i >= l.geo.Slots {
			return
		}
		var h slots.Header
		if !h.Decode(l.Ring.HeaderAt(i)) || h.Run < 1 {
			return
		}
		if slots.IsMark(h.Trace) && t.expects(l, h.Trace, now) {
			e := t.heardEntry(h.Trace)
			*e = heardTrace{mark: h.Trace, Lane: l, slot: i, ticket: h.Ticket, arrived: now}
		}
		i += int(h.Run)
	}
}

// heardEntry returns the entry for a request with a mark: that of the oldest, if there is
// no free one.
func (t *Tracer) heardEntry(mark uint64) *heardTrace {
	oldest := &t.heard[0]
	for k := range t.heard {
		e := &t.heard[k]
		if e.mark == mark {
			return e
		}
		if e.arrived < oldest.arrived {
			oldest = e
		}
	}
	return oldest
}

// Find returns what is known of a request with a mark, or nil.
func (t *Tracer) Find(mark uint64) *heardTrace {
	for k := range t.heard {
		if e := &t.heard[k]; e.mark == mark && mark != 0 {
			return e
		}
	}
	return nil
}

// look brings an entry up to date.
func (e *heardTrace) look(now int64) {
	rec := &e.Lane.records[e.slot]
	if rec.ticket != e.ticket || !rec.active {
		if rec.ticket == e.ticket {
			e.collected = now
		}
		return
	}
	if rec.worker == 0 {
		e.queued = true
		return
	}
	if rec.worker != e.worker {
		if e.worker != 0 {
			e.again++
		}
		e.worker, e.given, e.picked = rec.worker, now, 0
		e.process = processOf(e.Lane.domain.Workers[rec.worker])
	}
	// The memory is there: a lane with a record that is active is not taken away.
	if e.picked == 0 && e.Lane.Ring.AnswerWord(e.slot) == slots.MakeWord(slots.Picked, int(rec.run), int(rec.worker), rec.ticket) {
		e.picked = now
	}
}

// answering notes the answers of a group that is about to be handed to the provider, or
// to the requester's side of a local lane.
func (t *Tracer) answering(l *InLane, g groupsend.Group) {
	now := shm.Nanotime()
	end := g.Index
	// The records are what the peer has written since; the group is of what it wrote then.
	for n := 0; n < g.Count && end < len(l.records); n++ {
		end += int(l.records[end].run)
	}
	for k := range t.heard {
		e := &t.heard[k]
		if e.mark != 0 && e.Lane == l && e.posted == 0 && e.slot >= g.Index && e.slot < end && e.ticket == l.records[e.slot].ticket {
			e.answer(l, now, g.Count)
		}
	}
}

// answer notes that the answer is on its way.
func (e *heardTrace) answer(l *InLane, now int64, group int) {
	e.posted, e.answers = now, group
	if e.collected == 0 {
		e.collected = now
	}
	var h slots.Header
	if !h.Decode(l.Ring.HeaderAt(e.slot)) || h.Ticket != e.ticket {
		return
	}
	began, ended, ok := h.Handled()
	if ok && began >= e.arrived-stages.Slack && ended <= now+stages.Slack {
		e.began, e.ended = max(began, e.arrived), min(max(ended, e.arrived), now)
	}
}

// Admit makes requests of a peer be followed until a time, or no more. False: there are
// too many that do so.
func (t *Tracer) Admit(peer string, key uint32, now, until int64) bool {
	var place *traceKey
	known, live := false, 0
	for i := range t.keys {
		k := &t.keys[i]
		if k.peer == peer && k.key == key {
			place, known = k, true
			break
		}
		if k.peer == peer && k.until > now {
			live++
		}
		if place == nil && k.until <= now {
			place = k
		}
	}
	if place == nil || !known && live >= maxPeerKeys {
		return false
	}
	*place = traceKey{peer: peer, key: key, until: until}
	if until <= now {
		*place = traceKey{}
	}
	return true
}

// Stages returns what is known of a request, for its requester's node.
func (e *heardTrace) Stages(now int64) peerproto.Stage {
	since := func(at int64) int64 {
		if at == 0 {
			return 0
		}
		return max(1, at-e.arrived)
	}
	return peerproto.Stage{
		Mark: e.mark, Given: since(e.given), Began: since(e.began), Ended: since(e.ended), Picked: since(e.picked),
		Collected: since(e.collected), Posted: since(e.posted), Now: since(now),
		Queued: e.queued, Again: e.again, Worker: int(e.worker), Name: e.process.Name, PID: e.process.PID, Answers: e.answers,
	}
}
