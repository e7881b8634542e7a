package agent

import (
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// traced makes a domain follow all that its workers ask for.
func traced(d *Domain, count int64) *TraceWatch {
	w := &TraceWatch{Every: 1}
	w.Left.Store(count)
	w.Room.Store(count)
	d.Tracer = NewTracer(d)
	d.Tracer.Scopes[0] = &TraceScope{Watch: w}
	return w
}

// found are the requests that are over.
func (t *Tracer) foundAll(all bool) (list []FoundTrace) {
	t.Look()
	t.Harvest(0, all, func(e *SentTrace) { list = append(list, t.Found(e)) })
	return list
}

// post publishes a one-way message to a method.
func (s *side) post(t *testing.T, out *OutLane, w *rigWorker, method uint32) {
	u, err := out.Ring.Claim(w.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindOneWay, Method: method}
	h.Encode(out.Ring.Header(u))
	out.Ring.Publish(u, w.id)
	s.bells.MarkLane(rigLane)
}

// Lies of a worker make a trace that says so, or is wrong, and no more: stages are never
// negative and add up, and the request has its outcome.
func TestTraceOfLies(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	caller, service := s.addWorker(1), s.addService()
	for _, lie := range []uint64{1, 1 << 40, 1<<63 - 1, slots.PackStamps(1, shm.Nanotime()+1e12), slots.MakeMark(1, 1), 1<<64 - 1} {
		traced(s.d, 1)
		u, err := out.Ring.Claim(caller.id, 1)
		if err != nil {
			t.Fatal(err)
		}
		h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Method: rigMethod, Trace: lie}
		h.Encode(out.Ring.Header(u))
		out.Ring.Publish(u, caller.id)
		s.bells.MarkLane(rigLane)
		settle(s)
		hint, picked := service.picks(t, out.Ring)
		var req slots.Header
		if !req.Decode(out.Ring.Header(picked)) || !slots.IsMark(req.Trace) {
			t.Errorf("%#x: the request is not marked: %#x", lie, req.Trace)
		}
		// A handler that ended before it began, an hour ago.
		a := slots.Header{Ticket: picked.Ticket, Run: 1, Kind: slots.KindAnswer, Deadline: shm.Nanotime() - 3600e9, Trace: uint64(shm.Nanotime()) - 7200e9}
		a.Encode(out.Ring.Header(picked))
		out.Ring.Finish(picked, service.id)
		service.rings.Up.Push(hint)
		s.bells.MarkWorker(service.id)
		settle(s)
		caller.rings.SetTaken(req.Trace, shm.Nanotime()+1e15)
		list := s.d.Tracer.foundAll(false)
		if len(list) != 1 {
			t.Fatalf("%#x: %d traces", lie, len(list))
		}
		f := &list[0]
		got, sum, least := f.Sent.Split(f.Near, shm.Nanotime()), int64(0), int64(0)
		for _, s := range got.Stages("a", "a") {
			sum, least = sum+s.NS, min(least, s.NS)
		}
		if sum != got.Total || least < 0 || f.Sent.Taken != 0 || f.Near == nil || f.Near.Began != 0 {
			t.Errorf("%#x: %+v, %+v", lie, got, f.Near)
		}
		if !out.Ring.Acquire(u, caller.id) {
			t.Fatalf("%#x: no answer", lie)
		}
		out.Ring.Consume(u)
		caller.rings.Down.Pop()
	}
}

// As many requests are followed as there is room for; the others are only counted.
func TestTraceTableIsBounded(t *testing.T) {
	a, b, out, _ := remoteLane(t)
	w := a.addWorker(1)
	b.addService()
	watch := traced(a.d, 1000)
	const n = 100
	publish := func(round int) {
		for range out.geo.Slots {
			u, err := out.Ring.Claim(w.id, 1)
			if err != nil {
				return
			}
			h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindOneWay, Method: rigMethod + uint32(round)}
			h.Encode(out.Ring.Header(u))
			out.Ring.Publish(u, w.id)
		}
	}
	for round := 0; watch.Seen.Load() < n; round++ {
		publish(1) // nobody serves it: answered at once
		a.bells.MarkLane(rigLane)
		settle(a, b)
	}
	if a.d.Tracer.open != TraceEntries || watch.Skipped.Load() != watch.Seen.Load()-TraceEntries || watch.Left.Load() != 1000-TraceEntries {
		t.Errorf("%d followed, %d skipped, %d seen, %d left", a.d.Tracer.open, watch.Skipped.Load(), watch.Seen.Load(), watch.Left.Load())
	}
	if list := a.d.Tracer.foundAll(true); len(list) != TraceEntries || a.d.Tracer.open != 0 {
		t.Errorf("%d traces, %d left", len(list), a.d.Tracer.open)
	}
}

// Who follows many requests leaves others room for theirs.
func TestTraceTableIsShared(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	w := s.addWorker(1)
	publish := func(method uint32) {
		s.post(t, out, w, method)
		settle(s)
	}
	const many, one = 1 << 20, 1<<20 + 1 // nobody's
	all := traced(s.d, 1000)
	few := &TraceWatch{Every: 1}
	few.Left.Store(1)
	few.Room.Store(1)
	tr := s.d.Tracer
	tr.Scopes[1] = &TraceScope{Watch: few, Methods: map[RemoteMethod]bool{{"", one}: true}}
	for range TraceEntries {
		publish(many)
	}
	publish(one)
	if all.Skipped.Load() != TraceEntries/2+1 || few.Skipped.Load() != 0 || tr.Waits[0] != TraceEntries/2 || tr.Waits[1] != 1 {
		t.Errorf("%d and %d skipped, %v followed", all.Skipped.Load(), few.Skipped.Load(), tr.Waits)
	}
	// What is over stays until it is fetched, and then makes room.
	all.Room.Store(1)
	tr.foundAll(true)
	publish(many)
	publish(many)
	if tr.Waits[0] != 1 || all.Skipped.Load() != TraceEntries/2+2 {
		t.Errorf("%v followed, %d skipped", tr.Waits, all.Skipped.Load())
	}
}

// A peer's key counts for its own lanes and its time, and there is room for a few.
func TestTraceKeys(t *testing.T) {
	tr := NewTracer(nil)
	for k := range uint32(maxPeerKeys) {
		if !tr.Admit("b", k+1, 100, 200) {
			t.Fatalf("no room for key %d", k)
		}
	}
	if tr.Admit("b", 99, 100, 200) {
		t.Error("one peer has more than its share")
	}
	for k := range uint32(maxTraceKeys - maxPeerKeys) {
		if !tr.Admit(fmt.Sprintf("d%d", k), 1, 100, 200) {
			t.Fatalf("no room for another peer beside it and %d others", k)
		}
	}
	if tr.Admit("e", 99, 100, 200) || !tr.Admit("b", 3, 100, 300) || tr.idle(150) || !tr.idle(400) {
		t.Error("keys are not bounded, or not in time")
	}
	b := &InLane{Peer: &Peer{Name: "b"}}
	c := &InLane{Peer: &Peer{Name: "c"}}
	if !tr.expects(b, slots.MakeMark(3, 1), 150) || tr.expects(c, slots.MakeMark(3, 1), 150) || tr.expects(b, slots.MakeMark(99, 1), 150) || tr.expects(b, slots.MakeMark(3, 1), 300) {
		t.Error("a wrong request is followed")
	}
	if !tr.Admit("b", 3, 150, 150) || tr.expects(b, slots.MakeMark(3, 1), 150) {
		t.Error("a key that was taken back")
	}
}

// Following requests allocates nothing on the agent's thread.
func TestTraceDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	w := s.addWorker(1)
	traced(s.d, 1<<40)
	tr := s.d.Tracer
	if n := testing.AllocsPerRun(100, func() {
		s.post(t, out, w, 1<<20) // nobody's: no texts are made
		s.a.cycle()
		tr.Look()
		tr.Harvest(0, true, func(*SentTrace) {})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A request that is taken back from a process that goes says so, and the stages are those
// of the one that has answered.
func TestTraceOfRedispatch(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	caller, first := s.addWorker(1), s.addService()
	traced(s.d, 10)
	u, err := out.Ring.Claim(caller.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Method: rigMethod}
	h.Encode(out.Ring.Header(u))
	out.Ring.Publish(u, caller.id)
	s.bells.MarkLane(rigLane)
	settle(s)
	second := s.addWorker(7)
	second.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, second.view)
	s.d.Detach(first.view)
	settle(s)
	hint, picked := second.picks(t, out.Ring)
	s.d.Tracer.Look()
	if list := s.d.Tracer.foundAll(false); len(list) != 0 {
		t.Errorf("over before its answer: %+v", list)
	}
	a := slots.Header{Ticket: picked.Ticket, Run: 1, Kind: slots.KindAnswer}
	now := shm.Nanotime()
	a.SetHandled(now, now)
	a.Encode(out.Ring.Header(picked))
	out.Ring.Finish(picked, second.id)
	second.rings.Up.Push(hint)
	s.bells.MarkWorker(second.id)
	settle(s)
	caller.rings.SetTaken(slots.MakeMark(s.d.Tracer.Key, s.d.Tracer.n), shm.Nanotime())
	list := s.d.Tracer.foundAll(false)
	if len(list) != 1 || list[0].Near == nil || list[0].Near.Again != 1 || list[0].Near.Worker != 7 || list[0].Near.Began == 0 || list[0].Sent.Taken == 0 {
		t.Errorf("%+v", list)
	}
}

// A request that is sent again is followed on, by the connection that carried it last.
func TestTraceOfResend(t *testing.T) {
	a, b, out, _ := remoteLane(t)
	w := a.addWorker(1)
	b.addService()
	traced(a.d, 10)
	u, err := out.Ring.Claim(w.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Method: rigMethod}
	h.Encode(out.Ring.Header(u))
	out.Ring.Publish(u, w.id)
	a.bells.MarkLane(rigLane)
	settle(a, b)
	out.resend = append(out.resend, u.Index)
	out.Send()
	e := &a.d.Tracer.sent[a.d.Tracer.n%TraceEntries]
	if e.Resent != 1 || a.d.Tracer.open != 1 {
		t.Errorf("%+v", e)
	}
}

// A worker that attaches while a trace runs is told to leave stamps at once, not when somebody looks: it may be gone by then.
func TestTraceTellsWhoAttaches(t *testing.T) {
	s := newSide(t, nil)
	id := 0
	told := func(name string, pid int) bool {
		mem := shm.AlignedBytes(slots.WorkerSegmentSize)
		id++
		s.d.AddWorker(&Worker{ID: id, Name: name, PID: pid, Rings: slots.NewWorkerRings(mem)})
		return slots.NewWorkerRings(mem).Tracing()
	}
	if told("before", 10) {
		t.Error("told without a trace")
	}
	w := traced(s.d, 1)
	if !told("any", 11) {
		t.Error("not told of a trace of all")
	}
	for _, scope := range []TraceScope{{Watch: w, Name: "brief", PID: -1}, {Watch: w, Name: "12", PID: 12}} {
		s.d.Tracer.Scopes[0] = &scope
		if !told("brief", 12) || told("other", 13) {
			t.Errorf("told wrongly of a trace of %q", scope.Name)
		}
	}
	w.Left.Store(0)
	if told("brief", 12) {
		t.Error("told of a trace that has all that it wants")
	}
}

// Who has sent and handled a request is known when both are gone, and others have their ids.
func TestTraceKeepsNames(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.localLane(t)
	caller, service := s.addWorker(1), s.addService()
	caller.view.Name, caller.view.PID = "caller", 11
	service.view.Name, service.view.PID = "service", 12
	traced(s.d, 1)
	s.post(t, out, caller, rigMethod)
	settle(s)
	hint, picked := service.picks(t, out.Ring)
	a := slots.Header{Ticket: picked.Ticket, Run: 1, Kind: slots.KindAnswer}
	a.Encode(out.Ring.Header(picked))
	out.Ring.Finish(picked, service.id)
	service.rings.Up.Push(hint)
	s.bells.MarkWorker(service.id)
	settle(s)
	for _, w := range []*rigWorker{caller, service} {
		s.bury(w)
		s.addWorker(w.id).view.Name = "another"
	}
	list := s.d.Tracer.foundAll(false)
	if len(list) != 1 || list[0].Near == nil {
		t.Fatalf("%+v", list)
	}
	if f := &list[0]; f.Sent.Caller != (TraceProcess{"caller", 11}) || f.Near.Name != "service" || f.Near.PID != 12 {
		t.Errorf("sent by %+v, handled by %s (pid %d)", f.Sent.Caller, f.Near.Name, f.Near.PID)
	}
	for i := range s.d.Tracer.sent {
		if e := &s.d.Tracer.sent[i]; e.Caller.Name != "" {
			t.Errorf("%q is kept when nobody waits for it any more", e.Caller.Name)
		}
	}
}

// picks takes the request that has been delivered to a service.
func (w *rigWorker) picks(t *testing.T, ring *slots.Ring) (slots.Hint, slots.Run) {
	t.Helper()
	hint, ok := w.rings.Down.Pop()
	if !ok {
		t.Fatal("not delivered")
	}
	picked, ok := ring.PickHinted(hint, w.id)
	if !ok {
		t.Fatal("not picked")
	}
	return hint, picked
}
