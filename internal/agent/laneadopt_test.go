package agent

import (
	"slices"
	"testing"

	"github.com/rdmad/rdmad/internal/sharing"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// successor makes the core that takes over a local lane from the one of s, which does
// nothing from now on. The workers are the same, and services serve the method.
func (s *side) successor(t *testing.T, out *OutLane, in *InLane, workers ...*rigWorker) (*side, *OutLane, *InLane) {
	n := newSide(t, s.dev)
	n.bells, n.d.bells = s.bells, s.d.bells
	for _, w := range workers {
		old := w.view
		w.view = &Worker{ID: w.id, Rings: old.Rings, Mapped: old.Mapped, Ops: &WorkerOps{Ring: old.Ops.Ring}}
		n.d.AddWorker(w.view)
		if w.view.hasMapped(in.id) {
			n.d.Register(rigMethod, w.view)
		}
	}
	o := &OutLane{
		domain: n.d, id: out.id, Row: out.Row, geo: out.geo, Ring: out.Ring, kept: out.kept, Mirror: out.Mirror, Closed: out.Closed, Plan: out.Plan,
		journal: make([]entry, out.geo.Slots), covered: make([]bool, out.geo.Slots), blamed: map[int]slots.Word{}, lastSent: make([]slots.Word, out.geo.Slots), Sharing: sharing.New(out.Ring),
	}
	i := &InLane{
		domain: n.d, id: in.id, Row: in.Row, geo: in.geo, Ring: in.Ring, kept: in.kept, Mirror: in.Mirror, answers: in.answers,
		records: make([]record, in.geo.Slots), covered: make([]bool, in.geo.Slots), callers: make([]callerUse, len(in.callers)),
	}
	o.Local, i.Local = i, o
	n.d.AddOut(o)
	n.d.AddIn(i)
	waiting := i.Adopt()
	o.Adopt()
	n.d.DispatchAdopted(waiting)
	o.Rejoin()
	n.d.Resume()
	return n, o, i
}

// An order stays with its process when the core is replaced, also if it has started on
// nothing of it: hints that it has not looked at yet would else be in its way when the
// order comes back to it.
func TestOrderOutlivesTheCore(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller := s.addWorker(1)
	workers := []*rigWorker{s.addService()}
	for id := 3; id < 7; id++ {
		w := s.addWorker(id)
		w.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
		s.d.Register(rigMethod, w.view)
		workers = append(workers, w)
	}
	var want []int
	c := s.sendOrdered(t, caller, out.Ring, 7, slots.Run{})
	want = append(want, c.u.Index)
	for range 4 {
		c = s.sendOrdered(t, caller, out.Ring, 7, c.u)
		want = append(want, c.u.Index)
	}
	settle(s)
	var home *rigWorker
	for _, w := range workers {
		if w.view.outstanding == len(want) {
			home = w
		}
	}
	for range 3 {
		workers = append(workers[2:], workers[:2]...) // who comes first differs
		s, out, in = s.successor(t, out, in, append([]*rigWorker{caller}, workers...)...)
		settle(s)
		if home == nil || home.view.outstanding != len(want) {
			t.Fatal("the order is elsewhere")
		}
	}
	if got := slotsOf(s.take(t, home, in.Ring, 100)); !slices.Equal(got, want) {
		t.Errorf("started as %v, want %v", got, want)
	}
}

// The count of requests with an order wraps. Whatever it has come to, a core that takes over goes on from there: what it
// takes in later comes behind what the last core has.
func TestOrderOutlivesTheCoreAtAnyCount(t *testing.T) {
	for _, count := range []uint64{0, 1<<31 - 3, 1 << 31, 1<<32 - 3, 1<<40 - 3} {
		s := newSide(t, nil)
		s.d.arrivals = count
		out, in := s.localLane(t)
		caller, home := s.addWorker(1), s.addService()
		var want []int
		var last slots.Run
		send := func(n int) {
			for range n {
				c := s.sendOrdered(t, caller, out.Ring, 7, last)
				want, last = append(want, c.u.Index), c.u
			}
			settle(s)
		}
		send(1)
		s, out, in = s.successor(t, out, in, caller, home)
		send(4)
		other := s.addWorker(3)
		other.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
		s.d.Register(rigMethod, other.view)
		s.bury(home)
		settle(s)
		if got := slotsOf(s.take(t, other, in.Ring, 100)); !slices.Equal(got, want) {
			t.Errorf("from %d on: started as %v, want %v", count, got, want)
		}
	}
}

// The agent writes a record for each request: it takes no more than a line of the cache.
func TestRecordFitsALine(t *testing.T) {
	if n := shm.SizeOf[record](); n > 64 {
		t.Errorf("%d bytes", n)
	}
}

// A request waits behind a slow handler for as long as it takes, while any number of others arrive: it stays before those of its
// order that came later.
func TestOrderOverManyArrivals(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, home := s.addWorker(1), s.addService()
	var want []int
	var last slots.Run
	for range 3 {
		c := s.sendOrdered(t, caller, out.Ring, 7, last)
		want, last = append(want, c.u.Index), c.u
		settle(s)
		s.d.arrivals += 1<<31 + 1
	}
	other := s.addWorker(3)
	other.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, other.view)
	s.bury(home)
	settle(s)
	if got := slotsOf(s.take(t, other, in.Ring, 100)); !slices.Equal(got, want) {
		t.Errorf("started as %v, want %v", got, want)
	}
}

// The rings of two incarnations of a peer have the same small tickets. When the core dies
// between the record of a request and its delivery, what a handler has left in the
// answer word long ago is not taken for this request's.
func TestFreshMirrorHasNoAnswers(t *testing.T) {
	a, b, out, in := remoteLane(t)
	service := b.addService()
	w := a.addWorker(7)
	a.send(w, out.Ring, 10, false, 1)
	settle(a, b)
	b.work(service, in.Ring, 1)
	settle(a, b)
	old := in.records[0]
	in.Down()
	in.Fresh(99)
	in.kept.Accept(0, &vault.Record{Ticket: old.ticket, Run: old.run, Method: old.method, Answer: old.answer, From: old.from})
	waiting := in.Adopt()
	if len(waiting) != 1 || waiting[0].index != 0 || waiting[0].ticket != old.ticket {
		t.Errorf("%d requests wait; the record is %+v, the answer word %v", len(waiting), in.records[0], in.Ring.AnswerWord(0))
	}
	b.d.DispatchAdopted(waiting)
	settle(b)
	b.work(service, in.Ring, 1)
	settle(b)
	in.idle(t)
}

// A request that a core takes back from a process when it takes over is nobody's from then
// on: the next core must not think that the process has it.
func TestRequestsTakenBackByASuccessor(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, service := s.addWorker(1), s.addService()
	c := s.send(caller, out.Ring, 10, false, 1)
	settle(s)
	if got := in.kept.Load(c.u.Index).Worker; int(got) != service.id {
		t.Fatalf("process %d has it", got)
	}
	service.view.Mapped = [slots.MaxLanes / 64]uint64{} // it has not said yet that it has the lane
	s, out, in = s.successor(t, out, in, caller, service)
	if got := in.kept.Load(c.u.Index).Worker; got != 0 {
		t.Errorf("process %d has it", got)
	}
	service.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, service.view)
	settle(s)
	s.work(service, in.Ring, 1)
	settle(s)
	if !c.answered(t, 0) {
		t.Error("it was not answered")
	}
	out.idle(t)
	in.idle(t)
}

// An answer that its worker was sent by another way is nobody's any more: a core that takes over frees its slots, if the last
// one has not come to that.
func TestMovedAnswerIsFreedByASuccessor(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, service := s.addWorker(1), s.addService()
	c := s.send(caller, out.Ring, 300, false, 1)
	settle(s)
	s.work(service, in.Ring, 1)
	settle(s)
	if c.u.Len < 2 || !out.Ring.Move(c.u.Index, out.Ring.Word(c.u.Index)) {
		t.Fatalf("not moved: %+v, %v", c.u, out.Ring.Word(c.u.Index))
	}
	_, out, in = s.successor(t, out, in, caller, service)
	allFree(t, out.Ring, 0)
	out.idle(t)
	in.idle(t)
}

// A worker that spoils the word of its own request keeps its slots from others while a handler has them, also when the core is
// replaced meanwhile, and who is beside it in the ring gets its answer.
func TestSpoiledWordOutlivesTheCore(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	hostile, honest, service := s.addWorker(1), s.addWorker(3), s.addService()
	bad, good := s.send(hostile, out.Ring, 8, false, 1), s.send(honest, out.Ring, 8, false, 2)
	settle(s)
	for _, c := range []*rigCall{bad, good} {
		if _, ok := service.rings.Down.Pop(); !ok {
			t.Fatal("no hint")
		}
		pick(t, in.Ring, service, c.u.Index)
	}
	out.Ring.Free(bad.u.Index, bad.u.Len)
	s, out, in = s.successor(t, out, in, hostile, honest, service)
	var u slots.Run
	for u.Len == 0 || u.Index != bad.u.Index { // once around the ring
		if u.Len > 0 {
			out.Ring.Abort(u)
		}
		var err error
		if u, err = out.Ring.Claim(honest.id, 1); err != nil {
			t.Fatal(err)
		}
	}
	s.publishAs(t, honest, out.Ring, u, slots.Header{Method: rigMethod})
	settle(s)
	if w := in.Ring.AnswerWord(bad.u.Index); w.Ticket() != bad.u.Ticket {
		t.Error("the slot is another request's while its handler runs")
	}
	finish(s, in.Ring, service, bad.u)
	finish(s, in.Ring, service, good.u)
	settle(s)
	if !out.Ring.Answered(good.u, honest.id) {
		t.Error("the honest caller has no answer")
	}
	// What the handler has written to its slot was another's by then, who hears of that.
	if !out.Ring.Answered(u, honest.id) {
		t.Error("whoever has taken the slot meanwhile has no outcome")
	}
	if out.check(t); out.busy != 0 || service.view.outstanding != 0 {
		t.Errorf("%d slots are in use, the service has %d requests", out.busy, service.view.outstanding)
	}
}
