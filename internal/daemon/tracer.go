package daemon

import (
	"math/rand/v2"
	"sync/atomic"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// tracer is what an agent keeps of the requests of a domain that somebody follows. A
// domain has none while nobody does: then a group costs a look at a nil pointer, and so
// does a cycle. It belongs to the agent's thread and allocates nothing, and nothing but
// what a trace says depends on it.
type tracer struct {
	domain *agentDomain
	// key is in all marks of this tracer, n in the last one.
	key, n uint32
	// scopes say what is to be followed; nil where nobody asks.
	scopes [maxWatches]*traceScope
	// sent are requests of this node's workers, each where its mark says; open is how
	// many, and waits how many of them each scope waits for.
	sent  [traceEntries]sentTrace
	open  int
	waits [maxWatches]int
	// keys are those of peers whose requests are followed here, and heard are such
	// requests, and those between workers of this node.
	keys  [maxTraceKeys]traceKey
	heard [heardEntries]heardTrace
}

const (
	// maxWatches is how many traces may be under way at once.
	maxWatches = 4
	// traceEntries is how many requests of a domain are followed at once at most.
	traceEntries = slots.TakenStamps
	// heardEntries is more: they are used again without asking the requesters, which have
	// then asked about them.
	heardEntries = 4 * traceEntries
)

// traceWatch is a trace that is under way, as agents know it. Those of several domains may
// use one.
type traceWatch struct {
	// every: one of so many requests that match is followed. left is how many are still
	// to be, room how many more are until the tool has fetched some.
	every      uint64
	left, room atomic.Int64
	// since is when it began, by CLOCK_MONOTONIC.
	since int64
	// seen counts the requests that matched, skipped those that were not followed for
	// want of room.
	seen, skipped atomic.Uint64
}

// traceScope says which requests of a domain a watch is about. It is not changed, but
// replaced.
type traceScope struct {
	watch *traceWatch
	// owners are the attach ids of the callers, methods what they call; nil for all.
	owners  map[int]bool
	methods map[remoteMethod]bool
}

// remoteMethod is the id of a method at its node; "" is this one.
type remoteMethod struct {
	node string
	id   uint32
}

// sentTrace is a request that is followed, at its requester's node. Times are by
// CLOCK_MONOTONIC, 0 for not yet or unknown.
type sentTrace struct {
	// wanted has a bit for each scope that waits for it; 0: the entry is free. over:
	// there is nothing more to come.
	wanted uint8
	over   bool
	lane   *outLane
	slot   int
	mark   uint64
	word   slots.Word
	header slots.Header
	// began and published are the worker's.
	began, published int64
	// posted is when its group was handed to the provider, completed when that had done
	// with it.
	posted, completed int64
	group             groupShape
	resent            int
	// arrived is when the answer came, in a group of so many, and answer its header.
	arrived int64
	answers int
	answer  slots.Header
	// settled is when the request had its outcome, taken when the worker took it.
	settled, taken int64
}

// groupShape is what a group is made of.
type groupShape struct {
	messages, slots, writes int
	inline                  bool
}

func newTracer(d *agentDomain) *tracer {
	return &tracer{domain: d, key: rand.Uint32N(slots.MarkKeys) + 1}
}

// posting notes the requests of a group that is about to be handed to the provider, or
// delivered.
func (t *tracer) posting(l *outLane, g groupsend.Group) {
	now := shm.Nanotime()
	shape := groupShape{messages: g.Count}
	if l.pair != nil {
		shape.writes = int(l.pair.next+1) - int(l.journal[g.Index].wr)
		if in, ok := l.pair.ep.(fabric.Inliner); ok {
			shape.inline = g.Bytes <= in.InlineLimit()
		}
	}
	i := g.Index
	for range g.Count {
		run := l.journal[i].word.Run()
		shape.slots += run
		i += run
	}
	i = g.Index
	for range g.Count {
		word := l.journal[i].word
		t.consider(l, i, word, now, &shape)
		i += word.Run()
	}
}

// consider follows the request at slot i, if it is wanted.
func (t *tracer) consider(l *outLane, i int, word slots.Word, now int64, shape *groupShape) {
	var h slots.Header
	if l.journal[i].quiet || !h.Decode(l.ring.HeaderAt(i)) || h.Ticket != word.Ticket() {
		return
	}
	if e := &t.sent[h.Trace%traceEntries]; e.wanted != 0 && e.mark == h.Trace && e.lane == l && e.slot == i && e.word == word {
		e.resent++
		e.posted, e.completed, e.group = now, 0, *shape
		return
	}
	wanted := uint8(0)
	began, published, stamped := slots.UnpackStamps(h.Trace, now)
	for k, s := range &t.scopes {
		if s == nil || !stamped && now-s.watch.since < stampsWithin || !s.includes(l, word.Owner(), h.Method) {
			continue
		}
		n := s.watch.seen.Add(1)
		if (n-1)%s.watch.every != 0 {
			continue
		}
		if t.open == traceEntries || t.waits[k] >= t.share() || !claim(&s.watch.room) {
			s.watch.skipped.Add(1)
			continue
		}
		if !claim(&s.watch.left) {
			s.watch.room.Add(1)
			continue
		}
		t.waits[k]++
		wanted |= 1 << k
	}
	if wanted == 0 {
		return
	}
	for t.n++; t.sent[t.n%traceEntries].wanted != 0; t.n++ {
	}
	t.open++
	e := &t.sent[t.n%traceEntries]
	*e = sentTrace{wanted: wanted, lane: l, slot: i, mark: slots.MakeMark(t.key, t.n), word: word, header: h, posted: now, group: *shape}
	if stamped {
		e.began, e.published = began, published
	}
	// The slots are the daemon's from the swap in Take to the answer.
	slots.SetTrace(l.ring.HeaderAt(i), e.mark)
}

// share is how many requests each scope may wait for: what makes many requests leaves those
// of the others room.
func (t *tracer) share() int {
	n := 0
	for _, s := range &t.scopes {
		if s != nil {
			n++
		}
	}
	return traceEntries / max(1, n)
}

// claim takes one of what is left, if there is any. Agents of several domains may do so.
func claim(left *atomic.Int64) bool {
	if left.Add(-1) >= 0 {
		return true
	}
	left.Add(1)
	return false
}

// stampsWithin is for how long a watch leaves out requests without stamps: their callers
// have not seen yet that somebody asks.
const stampsWithin = int64(100e6)

// includes reports whether the request of a caller to a method is one of the scope's.
func (s *traceScope) includes(l *outLane, owner int, method uint32) bool {
	if s.watch.left.Load() <= 0 || s.owners != nil && !s.owners[owner] {
		return false
	}
	return s.methods == nil || s.methods[remoteMethod{l.peerName(), method}]
}

// peerName returns the node at the other end; "" for this one.
func (l *outLane) peerName() string {
	if l.peer == nil {
		return ""
	}
	return l.peer.name
}

// completed notes that the provider has done with the lane's work requests up to id.
func (t *tracer) completed(l *outLane, id uint64) {
	if t.open == 0 {
		return
	}
	now := shm.Nanotime()
	for k := range t.sent {
		e := &t.sent[k]
		if e.wanted == 0 || e.over || e.lane != l || e.completed != 0 {
			continue
		}
		if j := &l.journal[e.slot]; j.taken && j.word == e.word && j.wr != 0 && j.wr <= id {
			e.completed = now
		}
	}
}

// answered notes the answers of a group that has arrived. What the peer says is checked
// later.
func (t *tracer) answered(l *outLane, imm groupsend.Imm) {
	if t.open == 0 {
		return
	}
	now := shm.Nanotime()
	end := imm.Index()
	for range imm.Count() {
		if end >= l.geo.Slots || !l.journal[end].taken {
			break
		}
		end += l.journal[end].word.Run()
	}
	for k := range t.sent {
		e := &t.sent[k]
		if e.wanted == 0 || e.lane != l || e.slot < imm.Index() || e.slot >= end || e.arrived != 0 || l.journal[e.slot].word != e.word || !l.journal[e.slot].taken {
			continue
		}
		e.arrived, e.answers = now, imm.Count()
		if !e.answer.Decode(l.ring.HeaderAt(e.slot)) {
			e.answer = slots.Header{}
		}
		// The worker stamps what has a mark.
		slots.SetTrace(l.ring.HeaderAt(e.slot), e.mark)
	}
}

// takenWithin is how long a trace waits for a worker to take an answer.
const takenWithin = int64(2e9)

// look brings what is followed up to date; it is called in every cycle, and by whoever
// waits for the traces.
func (t *tracer) look() {
	if t.open == 0 && !t.hears() {
		return
	}
	now := shm.Nanotime()
	for k := range t.sent {
		if e := &t.sent[k]; e.wanted != 0 && !e.over {
			t.follow(e, now)
		}
	}
	for k := range t.heard {
		if h := &t.heard[k]; h.mark != 0 && h.collected == 0 {
			h.look(now)
		}
	}
}

// follow brings one entry up to date.
func (t *tracer) follow(e *sentTrace, now int64) {
	if e.settled == 0 {
		if j := &e.lane.journal[e.slot]; j.taken && j.word == e.word {
			return
		}
		e.settled = now
	}
	w := t.domain.workers[e.word.Owner()]
	if w == nil || w.gone || e.arrived == 0 || e.header.Kind == slots.KindOneWay {
		e.over = true
		return
	}
	at, ok := w.rings.Taken(e.mark)
	if ok && at >= e.arrived-stampSlack && at <= now+stampSlack {
		e.taken = max(at, e.arrived)
	}
	e.over = ok || now-e.settled > takenWithin
}

// stampSlack is how much two processes of a node may disagree about the time, and more.
const stampSlack = int64(10e3)

// harvest calls f with the entries that scope k waits for and that are over, or all that
// it waits for, and gives them up.
func (t *tracer) harvest(k int, all bool, f func(*sentTrace)) {
	for i := range t.sent {
		e := &t.sent[i]
		if e.wanted&(1<<k) == 0 || !e.over && !all {
			continue
		}
		f(e)
		t.waits[k]--
		if e.wanted &^= 1 << k; e.wanted == 0 {
			t.open--
			e.lane = nil
		}
	}
}

// place returns the number of the watch's scope, or -1; of no watch, that of a free one.
func (t *tracer) place(w *traceWatch) int {
	for k, s := range &t.scopes {
		if s == nil && w == nil || s != nil && s.watch == w {
			return k
		}
	}
	return -1
}

// tell makes the workers that somebody asks about leave stamps, and the others not.
func (t *tracer) tell() {
	for _, w := range t.domain.workers {
		if w == nil || w.gone {
			continue
		}
		wanted := false
		for _, s := range &t.scopes {
			wanted = wanted || s != nil && s.watch.left.Load() > 0 && (s.owners == nil || s.owners[w.id])
		}
		w.rings.SetTracing(wanted)
	}
}

// idle reports whether the tracer is not needed.
func (t *tracer) idle(now int64) bool {
	for _, s := range &t.scopes {
		if s != nil {
			return false
		}
	}
	for _, k := range &t.keys {
		if k.until > now {
			return false
		}
	}
	return true
}
