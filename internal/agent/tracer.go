package agent

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/stages"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Tracer is what an agent keeps of the requests of a domain that somebody follows. A
// domain has none while nobody does: then a group costs a look at a nil pointer, and so
// does a cycle. It belongs to the agent's thread and allocates nothing, and nothing but
// what a trace says depends on it.
type Tracer struct {
	domain *Domain
	// Key is in all marks of this tracer, n in the last one.
	Key, n uint32
	// Scopes say what is to be followed; nil where nobody asks.
	Scopes [MaxWatches]*TraceScope
	// sent are requests of this node's workers, each where its mark says; open is how
	// many, and Waits how many of them each scope waits for.
	sent  [TraceEntries]SentTrace
	open  int
	Waits [MaxWatches]int
	// keys are those of peers whose requests are followed here, and heard are such
	// requests, and those between workers of this node.
	keys  [maxTraceKeys]traceKey
	heard [heardEntries]heardTrace
}

const (
	// MaxWatches is how many traces may be under way at once.
	MaxWatches = 4
	// TraceEntries is how many requests of a domain are followed at once at most.
	TraceEntries = slots.TakenStamps
	// heardEntries is more: they are used again without asking the requesters, which have
	// then asked about them.
	heardEntries = 4 * TraceEntries
)

// TraceWatch is a trace that is under way, as agents know it. Those of several domains may
// use one.
type TraceWatch struct {
	// Every: one of so many requests that match is followed. Left is how many are still
	// to be, Room how many more are until the tool has fetched some.
	Every      uint64
	Left, Room atomic.Int64
	// Since is when it began, by CLOCK_MONOTONIC.
	Since int64
	// Seen counts the requests that matched, Skipped those that were not followed for
	// want of room.
	Seen, Skipped atomic.Uint64
}

// TraceScope says which requests of a domain a watch is about. It is not changed, but
// replaced.
type TraceScope struct {
	Watch *TraceWatch
	// Name is that of the callers, or PID their process; they may be all if Name is empty. There is no list of who they are: it
	// would lack those that have attached since it was made. Methods are what they call; nil for all.
	Name    string
	PID     int
	Methods map[RemoteMethod]bool
}

// RemoteMethod is the id of a method at its node; "" is this one.
type RemoteMethod struct {
	Node string
	ID   uint32
}

// SentTrace is a request that is followed, at its requester's node.
type SentTrace struct {
	// wanted has a bit for each scope that waits for it; 0: the entry is free. over:
	// there is nothing more to come.
	wanted uint8
	over   bool
	lane   *OutLane
	// Slot and Word are the request's, and Mark what it carries so that it is known again.
	Slot int
	Mark uint64
	Word slots.Word
	// Caller is whose it is.
	Caller TraceProcess
	// Request is what is known of it.
	stages.Request
}

// TraceProcess is a process that has to do with a request, as of when that was seen: when somebody asks it may be gone, and
// another have its id. It is zero if it was gone when the request was seen.
type TraceProcess struct {
	Name string
	PID  int
}

// processOf says who a worker is; nil: it was buried.
func processOf(w *Worker) TraceProcess {
	if w == nil {
		return TraceProcess{}
	}
	return TraceProcess{w.Name, w.PID}
}

// NewTracer returns a tracer for a domain, which follows nothing yet.
func NewTracer(d *Domain) *Tracer {
	return &Tracer{domain: d, Key: rand.Uint32N(slots.MarkKeyMask) + 1}
}

// posting notes the requests of a group that is about to be handed to the provider, or
// delivered.
func (t *Tracer) posting(l *OutLane, g groupsend.Group) {
	now := shm.Nanotime()
	shape := stages.Group{Messages: g.Count}
	if l.End != nil {
		shape.Writes = int(l.End.next+1) - int(l.journal[g.Index].wr)
		if in, ok := l.End.Endpoint.(fabric.Inliner); ok {
			shape.Inline = g.Bytes <= in.InlineLimit()
		}
	}
	i := g.Index
	for range g.Count {
		run := l.journal[i].word.Run()
		shape.Slots += run
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
func (t *Tracer) consider(l *OutLane, i int, word slots.Word, now int64, shape *stages.Group) {
	var h slots.Header
	if l.journal[i].quiet || !h.Decode(l.Ring.HeaderAt(i)) || h.Ticket != word.Ticket() {
		return
	}
	if e := &t.sent[h.Trace%TraceEntries]; e.wanted != 0 && e.Mark == h.Trace && e.lane == l && e.Slot == i && e.Word == word {
		e.Resent++
		e.Posted, e.Completed, e.Group = now, 0, *shape
		return
	}
	wanted, caller := uint8(0), t.domain.Workers[word.Owner()]
	began, published, stamped := slots.UnpackStamps(h.Trace, now)
	for k, s := range &t.Scopes {
		if s == nil || !stamped && now-s.Watch.Since < stampsWithin || !s.includes(l, caller, h.Method) {
			continue
		}
		n := s.Watch.Seen.Add(1)
		if (n-1)%s.Watch.Every != 0 {
			continue
		}
		if t.open == TraceEntries || t.Waits[k] >= t.share() || !claim(&s.Watch.Room) {
			s.Watch.Skipped.Add(1)
			continue
		}
		if !claim(&s.Watch.Left) {
			s.Watch.Room.Add(1)
			continue
		}
		t.Waits[k]++
		wanted |= 1 << k
	}
	if wanted == 0 {
		return
	}
	for t.n++; t.sent[t.n%TraceEntries].wanted != 0; t.n++ {
	}
	t.open++
	e := &t.sent[t.n%TraceEntries]
	*e = SentTrace{wanted: wanted, lane: l, Slot: i, Mark: slots.MakeMark(t.Key, t.n), Word: word, Caller: processOf(caller), Request: stages.Request{Header: h, Posted: now, Group: *shape}}
	if stamped {
		e.Began, e.Published = began, published
	}
	// The slots are the daemon's from the swap in Take to the answer.
	slots.SetTrace(l.Ring.HeaderAt(i), e.Mark)
}

// share is how many requests each scope may wait for: what makes many requests leaves those
// of the others room.
func (t *Tracer) share() int {
	n := 0
	for _, s := range &t.Scopes {
		if s != nil {
			n++
		}
	}
	return TraceEntries / max(1, n)
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
const stampsWithin = int64(100 * time.Millisecond)

// concerns reports whether more requests of a worker are to be followed; it is nil if it was buried before they were sent.
func (s *TraceScope) concerns(w *Worker) bool {
	return s.Watch.Left.Load() > 0 && (s.Name == "" || w != nil && (w.Name == s.Name || w.PID == s.PID))
}

// includes reports whether the request of a caller to a method is one of the scope's.
func (s *TraceScope) includes(l *OutLane, caller *Worker, method uint32) bool {
	if !s.concerns(caller) {
		return false
	}
	return s.Methods == nil || s.Methods[RemoteMethod{l.peerName(), method}]
}

// peerName returns the node at the other end; "" for this one.
func (l *OutLane) peerName() string {
	if l.Peer == nil {
		return ""
	}
	return l.Peer.Name
}

// completed notes that the provider has done with the lane's work requests up to id.
func (t *Tracer) completed(l *OutLane, id uint64) {
	if t.open == 0 {
		return
	}
	now := shm.Nanotime()
	for k := range t.sent {
		e := &t.sent[k]
		if e.wanted == 0 || e.over || e.lane != l || e.Completed != 0 {
			continue
		}
		if j := &l.journal[e.Slot]; j.taken && j.word == e.Word && j.wr != 0 && j.wr <= id {
			e.Completed = now
		}
	}
}

// answered notes the answers of a group that has arrived. What the peer says is checked
// later.
func (t *Tracer) answered(l *OutLane, imm groupsend.Imm) {
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
		if e.wanted == 0 || e.lane != l || e.Slot < imm.Index() || e.Slot >= end || e.Arrived != 0 || l.journal[e.Slot].word != e.Word || !l.journal[e.Slot].taken {
			continue
		}
		e.Arrived, e.Answers = now, imm.Count()
		if !e.Answer.Decode(l.Ring.HeaderAt(e.Slot)) {
			e.Answer = slots.Header{}
		}
		// The worker stamps what has a mark.
		slots.SetTrace(l.Ring.HeaderAt(e.Slot), e.Mark)
	}
}

// takenWithin is how long a trace waits for a worker to take an answer.
const takenWithin = int64(2 * time.Second)

// Look brings what is followed up to date; it is called in every cycle, and by whoever
// waits for the traces.
func (t *Tracer) Look() {
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
func (t *Tracer) follow(e *SentTrace, now int64) {
	if e.Settled == 0 {
		if j := &e.lane.journal[e.Slot]; j.taken && j.word == e.Word {
			return
		}
		e.Settled = now
	}
	w := t.domain.Workers[e.Word.Owner()]
	if w == nil || w.Gone || e.Arrived == 0 || e.Header.Kind == slots.KindOneWay {
		e.over = true
		return
	}
	at, ok := w.Rings.Taken(e.Mark)
	if ok && at >= e.Arrived-stages.Slack && at <= now+stages.Slack {
		e.Taken = max(at, e.Arrived)
	}
	e.over = ok || now-e.Settled > takenWithin
}

// Harvest calls f with the entries that scope k waits for and that are over, or all that
// it waits for, and gives them up.
func (t *Tracer) Harvest(k int, all bool, f func(*SentTrace)) {
	for i := range t.sent {
		e := &t.sent[i]
		if e.wanted&(1<<k) == 0 || !e.over && !all {
			continue
		}
		f(e)
		t.Waits[k]--
		if e.wanted &^= 1 << k; e.wanted == 0 {
			t.open--
			e.lane, e.Caller = nil, TraceProcess{}
		}
	}
}

// Place returns the number of the watch's scope, or -1; of no watch, that of a free one.
func (t *Tracer) Place(w *TraceWatch) int {
	for k, s := range &t.Scopes {
		if s == nil && w == nil || s != nil && s.Watch == w {
			return k
		}
	}
	return -1
}

// Tell makes the workers that somebody asks about leave stamps, and the others not.
func (t *Tracer) Tell() {
	for _, w := range t.domain.Workers {
		if w != nil && !w.Gone {
			t.tell(w)
		}
	}
}

// tell is Tell for one of them.
func (t *Tracer) tell(w *Worker) {
	wanted := false
	for _, s := range &t.Scopes {
		wanted = wanted || s != nil && s.concerns(w)
	}
	w.Rings.SetTracing(wanted)
}

// idle reports whether the tracer is not needed.
func (t *Tracer) idle(now int64) bool {
	for _, s := range &t.Scopes {
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
