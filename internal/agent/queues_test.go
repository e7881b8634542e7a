package agent

import (
	"slices"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// nudge has the agent look at what waits, as any worker can: with a hint of nothing.
func (s *side) nudge(w *rigWorker) {
	w.rings.Up.Push(slots.MakeHint(rigLane, 0, 0))
	s.bells.MarkWorker(w.id)
}

// tries returns how many requests of a lane from which nothing is delivered the agent has tried to deliver since it was
// asked last.
func (l *InLane) tries() (n int) {
	for i := range l.records {
		if l.Ring.AnswerWord(i) != 0 {
			n++
			l.Ring.Forget(i)
		}
	}
	return n
}

// queued sends n parts for a process, which wait.
func (s *side) queued(t *testing.T, w *rigWorker, out *OutLane, n, to int) (calls []*rigCall) {
	t.Helper()
	for range n {
		calls = append(calls, s.sendPart(t, w, out.Ring, to))
	}
	settle(s)
	if m := s.d.Method(rigMethod); m.queue.len() != n {
		t.Fatalf("%d of %d parts wait", m.queue.len(), n)
	}
	return calls
}

// quiet runs cycles until the agent may sleep.
func (s *side) quiet(t *testing.T) {
	t.Helper()
	for cycles := 0; s.a.cycle() > 0 || s.a.pending(); cycles++ {
		if cycles > 10_000 {
			t.Fatal("the agent never sleeps")
		}
	}
}

// A process that has room for nothing is tried once in a look, however many parts wait for it, and gets them all when it
// has room.
func TestPartsForAFullProcess(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.bigLane(t, rigLane)
	in := s.d.ins[rigLane]
	caller, service, other := s.addWorker(1), s.addService(), s.addWorker(3)
	for service.view.Rings.Down.Stage(slots.MakeHint(rigLane, 0, 0)) {
	}
	service.view.Rings.Down.Publish()
	const parts = 4000
	calls := s.queued(t, caller, out, parts, service.id)
	if n := in.tries(); n != parts {
		t.Fatalf("%d of %d parts were tried when they came", n, parts)
	}
	for range 3 {
		s.nudge(other)
		before := s.d.pass
		s.quiet(t)
		if looks, n := s.d.pass-before, in.tries(); looks != 1 || n > 1 {
			t.Errorf("%d looks, with %d tries", looks, n)
		}
	}
	for !service.rings.Down.Empty() {
		s.work(service, in.Ring, slots.HintEntries)
		s.bells.MarkWorker(service.id)
		s.quiet(t)
	}
	for _, c := range calls {
		if got := c.status(t); got != slots.StatusOK {
			t.Fatalf("slot %d ended with %v", c.u.Index, got)
		}
	}
}

// What waits for a process that has not got the lane costs a bounded part of it a cycle, whoever asks for looks. A process that
// says of twenty lanes in a cycle that it has them has it looked at once; and all is delivered then.
func TestPartsForAProcessWithoutTheLane(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.bigLane(t, rigLane)
	in := s.d.ins[rigLane]
	caller, service, other := s.addWorker(1), s.addWorker(rigService), s.addWorker(3)
	s.d.Register(rigMethod, service.view)
	const parts, most = 4000, 1024
	calls := s.queued(t, caller, out, parts, service.id)
	m := s.d.Method(rigMethod)
	s.d.mostQueued = most
	s.nudge(other)
	before := s.d.pass
	for cycle := range (parts + most - 1) / most {
		work := s.a.cycle()
		if came := min((cycle+1)*most, parts); m.queue.stayed != came%parts {
			t.Errorf("cycle %d has come to %d of %d requests, want %d", cycle, m.queue.stayed, parts, came)
		}
		if more := (cycle+1)*most < parts; more && (work == 0 || !s.a.pending()) {
			t.Errorf("after cycle %d the agent sleeps", cycle)
		}
	}
	if looks, n := s.d.pass-before, in.tries(); looks != 1 || n != 0 || s.a.pending() {
		t.Errorf("%d looks, %d tries, more to do: %v", looks, n, s.a.pending())
	}
	before = s.d.pass
	for lane := range uint16(20) {
		s.a.Commands.Do(func() { s.d.Maps(service.view, lane) })
	}
	s.a.cycle()
	if looks := s.d.pass - before; looks != 1 {
		t.Errorf("twenty lanes are %d looks", looks)
	}
	s.quiet(t)
	s.a.Commands.Do(func() { s.d.Maps(service.view, rigLane) })
	if s.quiet(t); s.d.pass-before != 1 {
		t.Errorf("a lane that it had is another look")
	}
	s.work(service, in.Ring, parts)
	s.quiet(t)
	for _, c := range calls {
		if got := c.status(t); got != slots.StatusOK {
			t.Fatalf("slot %d ended with %v", c.u.Index, got)
		}
	}
	in.idle(t)
}

// What waits behind parts that nobody takes is delivered, although others have it looked at all the time, and new parts come.
func TestQueuesStarveNobody(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.bigLane(t, rigLane)
	in := s.d.ins[rigLane]
	caller, stuck, other := s.addWorker(1), s.addWorker(rigService), s.addWorker(3)
	s.d.Register(rigMethod, stuck.view)
	const parts, most = 1000, 100
	s.queued(t, caller, out, parts, stuck.id)
	good := s.addWorker(4)
	s.d.Register(rigMethod, good.view)
	last := s.sendPart(t, caller, out.Ring, good.id)
	s.quiet(t)
	if n := in.tries(); n != 0 {
		t.Fatalf("%d are tried", n)
	}
	s.d.mostQueued = most
	s.nudge(other)
	s.a.cycle() // a look is under way
	s.a.Commands.Do(func() { s.d.Maps(good.view, rigLane) })
	cycles := 0
	for ; good.view.outstanding == 0; cycles++ {
		if cycles > 2*(parts/most+3) {
			t.Fatalf("it still waits after %d cycles", cycles)
		}
		s.nudge(other)
		s.sendPart(t, caller, out.Ring, stuck.id)
		s.a.cycle()
	}
	s.work(good, in.Ring, 1)
	s.quiet(t)
	if got := last.status(t); got != slots.StatusOK {
		t.Errorf("ended with %v", got)
	}
}

// Requests of an order that a look comes to in several cycles do not pass those before them when there is room in the middle of
// it, nor do those that come meanwhile, and all are delivered without anything else that happens.
func TestOrderInAnInterruptedLook(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, service, other := s.addWorker(1), s.addWorker(rigService), s.addWorker(3)
	s.d.Register(rigMethod, service.view)
	var want []int
	var last slots.Run
	send := func(n int) {
		for range n {
			last = s.sendOrdered(t, caller, out.Ring, 9, last).u
			want = append(want, last.Index)
		}
	}
	check := func() {
		t.Helper()
		if got := slotsOf(s.take(t, service, in.Ring, 100)); !slices.Equal(got, want) {
			t.Errorf("delivered %v, want %v", got, want)
		}
		if m := s.d.Method(rigMethod); m.orders.queued != 0 || m.queue.len() != 0 {
			t.Errorf("%d are queued, %d of them with an order", m.queue.len(), m.orders.queued)
		}
		want = nil
	}
	s.d.mostQueued = 3
	send(12)
	s.quiet(t)
	s.nudge(other)
	s.a.cycle()
	if !s.d.midway {
		t.Fatal("the look is over")
	}
	s.d.Maps(service.view, rigLane)
	send(4)
	s.a.cycle()
	if n := service.view.outstanding; n != 0 {
		t.Errorf("%d have passed others", n)
	}
	s.quiet(t)
	check()

	service.view.Mapped[rigLane/64] = 0
	send(6)
	s.quiet(t)
	s.d.Maps(service.view, rigLane)
	for range 3 { // of two looks; what comes meanwhile is put behind what has come before it
		s.a.cycle()
		send(2)
	}
	s.quiet(t)
	check()
}

// A look at everything, and the end of a lane, in the middle of another look forget nothing and nobody.
func TestInterruptedLookIsAbandoned(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, service, other := s.addWorker(1), s.addWorker(rigService), s.addWorker(3)
	s.d.Register(rigMethod, service.view)
	var want []int
	var last slots.Run
	for k := range 10 {
		last = s.sendOrdered(t, caller, out.Ring, 9, last).u
		want = append(want, last.Index)
		if k%2 == 0 {
			s.sendPart(t, caller, out.Ring, service.id)
		}
	}
	settle(s)
	m := s.d.Method(rigMethod)
	s.d.mostQueued = 4
	for k, abandon := range []func(){
		s.d.DrainQueues,
		func() { s.d.unqueue(new(InLane)) },
		func() { s.d.putBack(nil) },
	} {
		s.nudge(other)
		s.a.cycle()
		if !m.queue.looking() {
			t.Fatal("the look is over")
		}
		abandon()
		if s.quiet(t); m.queue.len() != 15 || m.orders.queued != 10 || m.queue.looking() {
			t.Fatalf("after %d: %d are queued, %d of them with an order, want 15 and 10", k, m.queue.len(), m.orders.queued)
		}
	}
	s.nudge(other)
	s.a.cycle()
	service.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	if s.d.DrainQueues(); m.queue.len() != 0 {
		t.Errorf("%d are queued after a look at everything", m.queue.len())
	}
	s.quiet(t)
	var got []int
	for {
		h, ok := service.rings.Down.Pop()
		if !ok {
			break
		}
		if _, ok := in.Ring.Pick(h.Index(), service.id); ok && h.Ordered() {
			got = append(got, h.Index())
		}
	}
	if !slices.Equal(got, want) || service.view.outstanding != 15 {
		t.Errorf("delivered %v of %d, want %v of 15", got, service.view.outstanding, want)
	}
}

// A request of a lane that no process of its method has mapped, and perhaps never will, but for one that takes none any more, does
// not hold up those behind it that came by another lane.
func TestLaneThatNobodyMaps(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	unmapped, _ := s.bigLane(t, rigLane+1)
	caller, service, other := s.addWorker(1), s.addWorker(rigService), s.addWorker(3)
	left := s.addWorker(4)
	for _, w := range []*rigWorker{left, service} {
		s.d.Register(rigMethod, w.view)
	}
	s.d.Maps(left.view, rigLane)
	s.d.Maps(left.view, rigLane+1)
	s.d.Withdraw(left.view)
	send := func(o *OutLane) *rigCall { return s.send(caller, o.Ring, 10, false, 1) }
	var calls []*rigCall
	for _, o := range []*OutLane{unmapped, out, unmapped, out} {
		calls = append(calls, send(o))
		settle(s)
	}
	if n := s.d.Method(rigMethod).queue.len(); n != len(calls) {
		t.Fatalf("%d of %d wait", n, len(calls))
	}
	s.d.Maps(service.view, rigLane)
	settle(s)
	if n := service.view.outstanding; n != 2 {
		t.Fatalf("%d are delivered by the lane that is mapped, want 2", n)
	}
	s.work(service, in.Ring, 2)
	settle(s)
	for _, k := range []int{1, 3} {
		if got := calls[k].status(t); got != slots.StatusOK {
			t.Errorf("call %d ended with %v", k, got)
		}
	}
	s.nudge(other)
	s.d.Maps(service.view, rigLane+1)
	settle(s)
	if n := service.view.outstanding; n != 2 {
		t.Errorf("%d are delivered by the other lane, want 2", n)
	}
}

// A request that only a process without room can take, since only that one has mapped the lane, does not hold up those of another lane,
// for which a process has room, with or without requests that have an order.
func TestProcessWithoutRoomHoldsUpItsOwnLane(t *testing.T) {
	for _, order := range []uint16{0, 7} {
		s := newSide(t, nil)
		out, in := s.localLane(t)
		first, _ := s.bigLane(t, rigLane+1)
		caller, full, idle := s.addWorker(1), s.addWorker(rigService), s.addWorker(3)
		for _, w := range []*rigWorker{full, idle} {
			s.d.Register(rigMethod, w.view)
		}
		s.d.Maps(full.view, rigLane+1)
		for full.view.Rings.Down.Push(slots.Hint(0)) {
		}
		calls := []*rigCall{s.sendAs(t, caller, first.Ring, slots.Header{Kind: slots.KindRequest, Order: order}), s.send(caller, first.Ring, 10, false, 1)}
		settle(s)
		calls = append(calls, s.send(caller, out.Ring, 10, false, 1)) // the last in the queue
		settle(s)
		if n := s.d.Method(rigMethod).queue.len(); n != len(calls) {
			t.Fatalf("%d of %d wait", n, len(calls))
		}
		s.d.Maps(idle.view, rigLane)
		settle(s)
		if n := idle.view.outstanding; n != 1 {
			t.Errorf("order %d: the process with room has %d requests, want 1", order, n)
		}
		s.work(idle, in.Ring, 1)
		settle(s)
		if got := calls[2].status(t); got != slots.StatusOK {
			t.Errorf("order %d: %v", order, got)
		}
	}
}
