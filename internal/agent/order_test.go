package agent

import (
	"slices"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// sendOrdered publishes a request with a number of an order, after another one.
func (s *side) sendOrdered(t *testing.T, w *rigWorker, r *slots.Ring, order int, after slots.Run) *rigCall {
	t.Helper()
	u, err := r.Claim(w.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	if after.Len == 0 {
		after = u
	}
	h := slots.Header{
		Ticket: u.Ticket, Run: 1, Answer: 8, Kind: slots.KindRequest, Method: rigMethod,
		Order: uint16(order), After: uint16(after.Index), AfterTicket: uint32(after.Ticket),
	}
	h.Encode(r.Header(u))
	if !r.Publish(u, w.id) {
		t.Fatal("not published")
	}
	s.bells.MarkLane(rigLane)
	return &rigCall{w: w, ring: r, u: u}
}

// take lets the service worker pick up to n requests and returns their hints, in
// order. It finishes none.
func (s *side) take(t *testing.T, w *rigWorker, r *slots.Ring, n int) (hints []slots.Hint) {
	t.Helper()
	for range n {
		h, ok := w.rings.Down.Pop()
		if !ok {
			break
		}
		if _, ok := r.Pick(h.Index(), w.id); !ok {
			continue
		}
		if !h.Ordered() {
			t.Errorf("slot %d: the hint does not say that it has an order", h.Index())
		}
		hints = append(hints, h)
	}
	return hints
}

// finish answers a request that was taken.
func (s *side) finish(w *rigWorker, r *slots.Ring, h slots.Hint) {
	word := r.AnswerWord(h.Index())
	u := slots.Run{Index: h.Index(), Len: word.Run(), Ticket: word.Ticket()}
	(&slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer}).Encode(r.Header(u))
	if r.Finish(u, w.id) {
		w.rings.Up.Push(h)
		s.bells.MarkWorker(w.id)
	}
}

func slotsOf(hints []slots.Hint) (is []int) {
	for _, h := range hints {
		is = append(is, h.Index())
	}
	return is
}

// Requests of an order go to one process, in order. When it detaches, those that it has
// not started wait until it is buried, because it may still run one, and those that
// come meanwhile wait behind them; then all go on, in order, in another process.
// Requests without an order do not wait.
func TestOrderOutlivesItsProcess(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller := s.addWorker(1)
	workers := []*rigWorker{s.addService(), s.addWorker(3)}
	workers[1].view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, workers[1].view)

	const order = 77
	var calls []*rigCall
	var last slots.Run
	send := func(n int) {
		for range n {
			c := s.sendOrdered(t, caller, out.Ring, order, last)
			calls, last = append(calls, c), c.u
		}
		settle(s)
	}
	send(10)
	home, other := workers[0], workers[1]
	if other.view.outstanding > 0 {
		home, other = other, home
	}
	if home.view.outstanding != 10 || other.view.outstanding != 0 {
		t.Fatalf("one process has %d, the other %d", home.view.outstanding, other.view.outstanding)
	}
	got := s.take(t, home, in.Ring, 3)
	s.finish(home, in.Ring, got[0])
	settle(s)
	s.d.Detach(home.view) // two are in their handlers
	settle(s)
	send(5)
	if n := other.view.outstanding; n != 0 {
		t.Fatalf("%d go on while the process that had them may run", n)
	}
	plain := s.send(caller, out.Ring, 8, false, 1)
	settle(s)
	s.work(other, in.Ring, 1)
	settle(s)
	if !plain.answered(t, 0) {
		t.Fatal("a request without an order waits")
	}
	s.d.Bury(home.view)
	settle(s)
	want := make([]int, 0, 12)
	for _, c := range calls[3:] {
		want = append(want, c.u.Index)
	}
	rest := s.take(t, other, in.Ring, 100)
	if !slices.Equal(slotsOf(rest), want) {
		t.Fatalf("they go on as %v, want %v", slotsOf(rest), want)
	}
	for _, h := range rest {
		s.finish(other, in.Ring, h)
	}
	settle(s)
	for k, c := range calls {
		want := slots.StatusOK
		if k == 1 || k == 2 {
			want = slots.StatusMaybeExecuted
		}
		if got := c.status(t); got != want {
			t.Errorf("number %d ended with %v, want %v", k, got, want)
		}
	}
	out.idle(t)
	in.idle(t)
	allFree(t, out.Ring, 0)
}

// What waits in the daemon because its process has no room is not passed by requests
// of the same order that come when there is room, and ends with the lane.
func TestOrderInTheQueue(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, service := s.addWorker(1), s.addWorker(rigService)
	s.d.Register(rigMethod, service.view) // without the lane: nothing can be delivered
	var calls []*rigCall
	var last slots.Run
	for k := range 12 {
		c := s.sendOrdered(t, caller, out.Ring, 9, last)
		calls, last = append(calls, c), c.u
		settle(s)
		if k == 7 {
			service.view.Mapped[rigLane/64] |= 1 << (rigLane % 64) // and nobody looks at the queue
			if n := service.view.outstanding; n != 0 {
				t.Fatalf("%d are delivered without the lane", n)
			}
		}
	}
	hints := s.take(t, service, in.Ring, 100)
	for k, c := range calls {
		if len(hints) != len(calls) || hints[k].Index() != c.u.Index {
			t.Fatalf("delivered %v", slotsOf(hints))
		}
	}
	if m := s.d.Method(rigMethod); m.orders.queued != 0 || m.queue.len() != 0 {
		t.Errorf("%d are queued, %d of them with an order", m.queue.len(), m.orders.queued)
	}
	for _, h := range hints {
		s.finish(service, in.Ring, h)
	}
	settle(s)
	for _, c := range calls {
		if got := c.status(t); got != slots.StatusOK {
			t.Errorf("ended with %v", got)
		}
	}
	service.view.Mapped[rigLane/64] = 0
	c := s.sendOrdered(t, caller, out.Ring, 9, last)
	settle(s)
	s.bury(service)
	settle(s)
	if got := c.status(t); got != slots.StatusNoService {
		t.Errorf("without a process: %v", got)
	}
	if m := s.d.Method(rigMethod); m.orders.queued != 0 {
		t.Errorf("%d with an order are queued", m.orders.queued)
	}
	out.idle(t)
	in.idle(t)
}

// A request of one order that waits, for a process that is gone and not dead yet, keeps none of another order waiting, also
// when nothing else happens.
func TestOtherOrdersGoOn(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, gone := s.addWorker(1), s.addService()
	c := s.sendOrdered(t, caller, out.Ring, 9, slots.Run{})
	settle(s)
	s.take(t, gone, in.Ring, 1)
	other := s.addWorker(3)
	other.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
	s.d.Register(rigMethod, other.view)
	s.d.Detach(gone.view)
	waiting := s.sendOrdered(t, caller, out.Ring, 9, c.u)
	settle(s)
	next := s.sendOrdered(t, caller, out.Ring, 10, slots.Run{})
	settle(s)
	if got := slotsOf(s.take(t, other, in.Ring, 2)); !slices.Equal(got, []int{next.u.Index}) {
		t.Errorf("slots %v go on, want %d", got, next.u.Index)
	}
	s.d.Bury(gone.view)
	settle(s)
	if got := slotsOf(s.take(t, other, in.Ring, 2)); !slices.Equal(got, []int{waiting.u.Index}) {
		t.Errorf("slots %v go on when it is dead, want %d", got, waiting.u.Index)
	}
}

// While requests of an order wait for a process that is gone and not dead yet, what the others finish in a cycle costs
// one look at the queue, however many they are.
func TestOneLookAtTheQueueInACycle(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, gone := s.addWorker(1), s.addService()
	c := s.sendOrdered(t, caller, out.Ring, 9, slots.Run{})
	settle(s)
	s.take(t, gone, in.Ring, 1)
	var others []*rigWorker
	for id := 3; id < 11; id++ {
		w := s.addWorker(id)
		w.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
		s.d.Register(rigMethod, w.view)
		others = append(others, w)
	}
	s.d.Detach(gone.view)
	s.sendOrdered(t, caller, out.Ring, 9, c.u)
	settle(s)
	for range others {
		s.send(caller, out.Ring, 8, false, 1)
	}
	settle(s)
	for _, w := range others {
		if w.view.outstanding != 1 {
			t.Fatalf("process %d has %d requests", w.id, w.view.outstanding)
		}
		s.work(w, in.Ring, 1)
	}
	before := s.d.pass
	s.a.cycle()
	for _, w := range others {
		if w.view.outstanding != 0 {
			t.Fatalf("process %d has %d requests", w.id, w.view.outstanding)
		}
	}
	if n := s.d.pass - before; n != 1 {
		t.Errorf("%d looks at the queue", n)
	}
	s.d.Bury(gone.view)
	settle(s)
	if n := s.d.Method(rigMethod).queue.len(); n != 0 {
		t.Errorf("%d are queued", n)
	}
}
