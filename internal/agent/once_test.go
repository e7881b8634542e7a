package agent

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// bigGeometry is that of the small class by default.
var bigGeometry = slots.Geometry{SlotSize: 128, Slots: 8192, MaxRun: 64}

// bigLane adds a local lane with that geometry.
func (s *side) bigLane(t testing.TB, id uint16) (out *OutLane, mem []byte) {
	t.Helper()
	mem = shm.AlignedBytes(bigGeometry.SegmentSize())
	r, err := slots.NewRing(mem, bigGeometry)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.New(shm.AlignedBytes(vault.Size(bigGeometry.Slots)), bigGeometry.Slots)
	if err != nil {
		t.Fatal(err)
	}
	out, in := NewOutLane(s.d, id, r, v, 16), NewInLane(s.d, id, r, v, 16)
	out.Local, in.Local = in, out
	s.d.AddOut(out)
	s.d.AddIn(in)
	return out, mem
}

// However many requests in a dead process's name end in a cycle, what is left of that process is looked for once.
func TestOneLookForTheDead(t *testing.T) {
	const lanes = 6
	s := newSide(t, nil)
	var outs []*OutLane
	var mems [][]byte
	for k := range lanes {
		out, mem := s.bigLane(t, uint16(rigLane+k))
		outs, mems = append(outs, out), append(mems, mem)
	}
	dead, living := s.addWorker(9), s.addWorker(4)
	s.addWorker(5) // so that nobody is blamed
	put := func(k, i int, ticket uint64) {
		h := slots.Header{Ticket: ticket, Run: 1, Kind: slots.KindRequest, Method: rigMethod, Deadline: 1} // too late
		h.Encode(outs[k].Ring.HeaderAt(i))
		shm.Uint64At(mems[k], offWords+8*i).Store(uint64(slots.MakeWord(slots.Pub, 1, dead.id, ticket)))
	}
	ring := func() {
		for k := range outs {
			shm.Uint64At(mems[k], offCursor).Add(1 << 40)
			s.bells.MarkLane(uint16(rigLane + k))
		}
	}
	for k := range outs { // words that are left where they are
		for i := 100; i < bigGeometry.Slots; i++ {
			shm.Uint64At(mems[k], offWords+8*i).Store(uint64(slots.MakeWord(slots.Pub, 2, living.id, 7)))
		}
	}
	ring()
	settle(s)
	s.d.Detach(dead.view)
	s.a.cycle()
	s.d.Bury(dead.view)
	put(0, 99, 50)
	s.d.Mourn(dead.view, shm.Nanotime())
	for k := range outs {
		for i := range 80 {
			put(k, i, 100)
		}
	}
	ring()
	refused := s.a.Count.Refused
	// Of processor time: a machine may leave the cycle standing.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	s.a.cycle()
	took := threadTime() - before
	if n := s.a.Count.Refused - refused; n < 30*lanes {
		t.Errorf("%d were refused", n)
	}
	// A look for each of them takes seconds here, one for all less than a millisecond.
	if took <= 0 || took > time.Second {
		t.Errorf("the cycle takes %v", took)
	}
	settle(s)
	if len(s.d.mourned) != 0 {
		t.Errorf("something is left of %v", s.d.mourned)
	}
}

// A process that has withdrawn and ends requests with an order costs a look at the homes of orders for each cycle, not for each.
func TestOneLookAtTheHomes(t *testing.T) {
	s := newSide(t, nil)
	out, _ := s.bigLane(t, rigLane)
	service, c := s.addService(), s.addWorker(4)
	var hints []slots.Hint
	for len(hints) < 4000 {
		u, err := out.Ring.Claim(c.id, 1)
		if err != nil {
			t.Fatal(err)
		}
		h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindOneWay, Method: rigMethod, From: uint16(c.id), Order: uint16(len(hints)%1000 + 1), After: uint16(u.Index), AfterTicket: uint32(u.Ticket)}
		h.Encode(out.Ring.Header(u))
		out.Ring.Publish(u, c.id)
		s.bells.MarkLane(rigLane)
		s.a.cycle()
		for {
			h, ok := service.rings.Down.Pop()
			if !ok {
				break
			}
			if _, ok := out.Ring.Pick(h.Index(), service.id); !ok {
				t.Fatal("not picked")
			}
			hints = append(hints, h)
		}
	}
	s.d.Withdraw(service.view)
	settle(s)
	for _, h := range hints {
		w := out.Ring.AnswerWord(h.Index())
		a := slots.Header{Ticket: w.Ticket(), Run: 1, Kind: slots.KindAnswer}
		a.Encode(out.Ring.HeaderAt(h.Index()))
		out.Ring.Finish(slots.Run{Index: h.Index(), Len: 1, Ticket: w.Ticket()}, service.id)
		service.rings.Up.Push(h)
	}
	s.bells.MarkWorker(service.id)
	done := s.a.Count.OneWayDone
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.a.cycle()
	runtime.ReadMemStats(&after)
	if n := s.a.Count.OneWayDone - done; n < 500 {
		t.Errorf("%d have ended", n)
	}
	if n := after.Mallocs - before.Mallocs; n > 200 { // each look makes a set of those that are under way
		t.Errorf("the cycle makes %d allocations", n)
	}
	settle(s)
	for order := range uint16(1000) {
		if h := s.d.Method(rigMethod).orders.home(order+1, rigLane); h.worker != nil {
			t.Fatalf("order %d has not left the process", order+1)
		}
	}
}

// Nor does an answer that has waited for an operation cost a look at everything that waits.
func TestOneLookAfterOperations(t *testing.T) {
	x := newRegionRig(t, nil)
	m := x.b.d.MethodFor(rigMethod + 1)
	m.orders = new(orders)
	gone, other := x.b.addWorker(30), x.b.addWorker(31)
	for _, w := range []*rigWorker{gone, other} {
		w.view.Mapped[rigLane/64] |= 1 << ((rigLane + 1) % 64)
		x.b.d.Register(rigMethod+1, w.view)
	}
	for i := range m.orders.homes {
		m.orders.homes[i].worker = gone.view
	}
	x.b.d.Detach(gone.view)
	big, _ := x.b.bigLane(t, rigLane+1)
	for i := range 8 { // they wait for its end
		rec := &big.Local.records[i]
		rec.active, rec.seen, rec.run, rec.from, rec.method, rec.ticket, rec.order, rec.oneway = true, true, 1, 9, rigMethod+1, 1, uint16(i+1), true
		big.Local.note(i)
		big.Local.dispatch(i)
	}
	if m.queue.len() == 0 {
		t.Fatal("nothing waits")
	}
	const calls = 60
	var begun []slots.Run
	for range calls {
		_, u := x.begin(whole(x.far, slots.RightWrite))
		begun = append(begun, u)
	}
	x.b.a.cycle()
	for k, u := range begun {
		size := uint64(8)
		if k == 0 {
			size = rigRegion // behind which the small ones end together
		}
		x.submit(x.service, op(u, slots.OpWrite, 0, size, x.own))
	}
	x.b.a.cycle()
	for _, u := range begun {
		x.finish(u)
	}
	passes, done := x.b.d.pass, x.b.a.Count.RegionOps
	for range 200 {
		x.b.a.cycle()
	}
	if n := x.b.a.Count.RegionOps - done; n < calls/2 {
		t.Errorf("%d operations", n)
	}
	if n := x.b.d.pass - passes; n > calls/4 {
		t.Errorf("%d operations are %d looks at what waits", calls, n)
	}
	big.Local.Down()
}
