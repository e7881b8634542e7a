package agent

import (
	"bytes"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/slots"
)

// A huge operation of one worker does not delay the small ones of another by more
// than a few cycles.
func TestMoverFairness(t *testing.T) {
	eachRig(t, func(t *testing.T, x *regionRig) {
		_, u := x.begin(whole(x.far, slots.RightWrite))
		// A second service process, with a call of its own.
		second := x.b.addWorker(3)
		second.view.Mapped[rigLane/64] |= 1 << (rigLane % 64)
		mine := x.addRegion(x.b, 3, 3)
		x.b.d.methods[x.b.d.MethodNumber(rigMethod)].workers = []*Worker{second.view}
		c2 := x.call(x.caller, whole(x.far, slots.RightWrite))
		settle(x.a, x.b)
		h, ok := second.rings.Down.Pop()
		if !ok {
			t.Fatal("no call")
		}
		u2, ok := x.in.Ring.Pick(h.Index(), 3)
		if !ok {
			t.Fatal("not picked")
		}
		for range 8 {
			x.submit(x.service, op(u, slots.OpWrite, 0, rigRegion, x.own))
		}
		x.b.a.cycle()
		most := 0
		for range 5 {
			x.submit(second, op(u2, slots.OpWrite, 8, 64, mine))
			n := 0
			for second.ops.Empty() {
				if n++; n > 50 {
					t.Fatal("a small operation waits for ever")
				}
				x.b.a.cycle()
				x.a.a.cycle()
			}
			var r slots.Result
			second.ops.Take(&r)
			most = max(most, n)
		}
		if most > 6 {
			t.Errorf("a small operation has waited for %d cycles", most)
		}
		if !x.service.ops.Empty() && x.in.records[u.Index].grants.busy == 0 {
			t.Error("the huge operations were faster: this tests nothing")
		}
		answer := slots.Header{Ticket: u2.Ticket, Run: uint16(u2.Len), Kind: slots.KindAnswer}
		answer.Encode(x.in.Ring.Header(u2))
		x.in.Ring.Finish(u2, 3)
		second.rings.Up.Push(slots.MakeHint(rigLane, u2.Index, u2.Ticket))
		x.b.bells.MarkWorker(3)
		settle(x.a, x.b)
		if _, ok := c2.outcome(t); !ok {
			t.Error("no answer")
		}
		x.finish(u)
		settle(x.a, x.b)
	})
}

// A connection that breaks in the middle of operations while the link lives: reads and
// writes are done over the next one, and only atomic operations that had begun fail.
func TestMoverBroken(t *testing.T) {
	for _, after := range []int{10, 11, 23, 40} {
		x := newRegionRig(t, fabrictest.Faulty(fabrictest.NewFake(), uint64(after), fabrictest.Plan{
			DisconnectAfter: after, HalfWrite: true, DropCompletions: after%2 == 0, Delay: 0.2,
		}))
		copy(x.own.Mem, bytes.Repeat([]byte{7}, rigRegion))
		c, u := x.begin(whole(x.far, slots.RightWrite|slots.RightRead|slots.RightAtomic))
		lost, done := 0, 0
		for range 12 {
			x.submit(x.service, op(u, slots.OpWrite, 0, 1<<20, x.own))
			add := op(u, slots.OpFetchAdd, 2<<20, 1, x.own)
			add.Cookie, add.Swap = 1, 1
			x.submit(x.service, add)
			x.submit(x.service, op(u, slots.OpRead, 3<<20, 1<<20, x.own))
		}
		for idle := 0; idle < 10; idle++ {
			// Small steps, however long this takes: what is lost is up to the seed alone.
			accompany(x.b.a)
			if x.b.a.cycle()+x.a.a.cycle() > 0 {
				idle = 0
			}
		}
		for range 36 {
			switch r := x.result(x.service); {
			case r.Status == slots.OpOK:
				done++
			case r.Status == slots.OpLost && r.Cookie == 1:
				lost++
			default:
				t.Errorf("after %d: %+v", after, r)
			}
		}
		if lost == 0 || done == 0 || x.opened < 2 {
			t.Errorf("after %d: %d operations lost, %d done, %d connections", after, lost, done, x.opened)
		}
		x.refuse = true
		if x.in.Peer.Mover.End != nil {
			x.in.Peer.Mover.Broken(nil)
		}
		x.submit(x.service, op(u, slots.OpWrite, 0, 8, x.own))
		if r := x.result(x.service); r.Status != slots.OpLost {
			t.Errorf("without a way: %v", r.Status)
		}
		x.refuse = false
		x.submit(x.service, op(u, slots.OpWrite, 0, 8, x.own))
		if r := x.result(x.service); r.Status != slots.OpOK {
			t.Errorf("with a new way: %v", r.Status)
		}
		x.finish(u)
		for range 10 {
			settle(x.a, x.b) // completions are delayed
		}
		if status, ok := c.outcome(t); !ok || status != slots.StatusOK {
			t.Errorf("the call: %v, %v", status, ok)
		}
	}
}

// A device whose queue is full for a while delays operations and loses none.
func TestMoverQueueFull(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	c, u := x.begin(whole(x.far, slots.RightWrite|slots.RightAtomic))
	x.submit(x.service, op(u, slots.OpFetchAdd, 0, 8, x.own))
	x.result(x.service) // the connection is there
	full := &fullAtTimes{Endpoint: x.in.Peer.Mover.End.Endpoint}
	x.in.Peer.Mover.End.Endpoint = full
	for i := range 200 {
		x.submit(x.service, op(u, slots.OpWrite, uint64(i)<<14, 1<<14, x.own))
		o := op(u, slots.OpFetchAdd, 0, 8, x.own)
		o.Swap, o.LocalOffset = 1, 0
		x.submit(x.service, o)
		for range 2 {
			if r := x.result(x.service); r.Status != slots.OpOK {
				t.Fatal(r.Status)
			}
		}
	}
	if full.times == 0 {
		t.Error("the queue was never full")
	}
	x.finish(u)
	settle(x.a, x.b)
	if _, ok := c.outcome(t); !ok {
		t.Error("no answer")
	}
}

// fullAtTimes takes one work request less than it is given at every other call.
type fullAtTimes struct {
	fabric.Endpoint
	calls, times int
}

func (e *fullAtTimes) PostSend(wrs []fabric.SendWR) (int, error) {
	if e.calls++; e.calls%2 == 0 || len(wrs) == 0 {
		return e.Endpoint.PostSend(wrs)
	}
	e.times++
	n, err := e.Endpoint.PostSend(wrs[:len(wrs)-1])
	if err == nil {
		err = fabric.ErrQueueFull
	}
	return n, err
}

// What has been changed in the slots since the requester's daemon looked is refused by
// the daemon of the handler, and the lane goes on.
func TestRefsCheckedOnArrival(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	for i, ref := range []slots.Ref{
		{Region: x.far.ID, Rights: slots.RightRead, Offset: rigRegion - 1, Length: 2},
		{Region: x.far.ID, Rights: slots.RightRead, Offset: ^uint64(0), Length: 2},
		{Region: x.far.ID, Rights: 8, Length: 2},
		{Region: x.own.ID, Rights: slots.RightRead, Length: 2},
		{Rights: slots.RightRead, Length: 2},
	} {
		p := x.in.Ring.PayloadAt(i, 1)
		good := whole(x.far, slots.RightRead)
		good.Encode(p)
		ref.Encode(p[slots.RefSize:])
		h := slots.Header{Ticket: uint64(10 + i), Run: 1, Length: 64, Kind: slots.KindRequest, Method: rigMethod, Flags: slots.FlagRefs, Refs: 2}
		h.Encode(x.in.Ring.HeaderAt(i))
		if run, ok := x.in.request(i); run != 1 || !ok {
			t.Fatalf("%+v ends the lane", ref)
		}
		var a slots.Header
		if !a.Decode(x.in.Ring.HeaderAt(i)) || a.Status != slots.StatusInvalid && a.Status != slots.StatusNotExported {
			t.Errorf("%+v: %v", ref, a.Status)
		}
	}
	if _, ok := x.service.rings.Down.Pop(); ok || x.in.Busy != 0 {
		t.Error("a request has reached the handler")
	}
	if r := x.in.Peer.imports[x.far.ID]; r.refs != 0 {
		t.Errorf("%d grants are left", r.refs)
	}
}

// Atomic operations over a device that has none are refused, and harm no others.
func TestNoAtomics(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	c, u := x.begin(whole(x.far, slots.AllRights))
	for _, atomics := range []bool{true, false, true} {
		x.submit(x.service, op(u, slots.OpWrite, 0, 100, x.own))
		if r := x.result(x.service); r.Status != slots.OpOK {
			t.Errorf("a write: %v", r.Status)
		}
		x.in.Peer.Mover.End.Atomics = atomics
		want := map[bool]slots.OpStatus{true: slots.OpOK, false: slots.OpUnsupported}[atomics]
		x.submit(x.service, op(u, slots.OpFetchAdd, 0, 8, x.own))
		if r := x.result(x.service); r.Status != want {
			t.Errorf("an add with atomics %v: %v", atomics, r.Status)
		}
	}
	x.finish(u)
	settle(x.a, x.b)
	if _, ok := c.outcome(t); !ok {
		t.Error("no answer")
	}
}

// A lane that breaks ends the operations of its calls, and those that come later.
func TestLaneDownInAnOp(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	_, u := x.begin(whole(x.far, slots.RightWrite))
	for range 3 {
		x.submit(x.service, op(u, slots.OpWrite, 0, rigRegion, x.own))
	}
	x.b.a.cycle()
	x.in.Down()
	x.submit(x.service, op(u, slots.OpWrite, 0, 8, x.own))
	for range 4 {
		if r := x.result(x.service); r.Status != slots.OpLost {
			t.Errorf("an operation: %v", r.Status)
		}
	}
	x.finish(u)
	settle(x.a, x.b)
	if x.in.Busy != 0 {
		t.Error("the call is still open")
	}
}

// What a list's table says is checked when it is used, whatever it said before.
func TestListChangesUnderWay(t *testing.T) {
	eachRig(t, func(t *testing.T, x *regionRig) {
		c, u := x.begin(slots.Ref{Region: x.far.ID, Rights: slots.RightWrite, Length: 2 << 20})
		const pieces = 8
		for k := range pieces {
			p := slots.Piece{Offset: uint64(k) << 18, Local: x.own.ID, LocalOffset: 1 << 20, Length: 1 << 18}
			p.Encode(x.own.Mem[k*slots.PieceSize:])
		}
		copy(x.own.Mem[1<<20:], bytes.Repeat([]byte{7}, 1<<20))
		x.submit(x.service, op(u, slots.OpWriteList, 0, pieces, x.own))
		x.b.a.cycle()
		p := slots.Piece{Offset: 3 << 20, Local: x.own.ID, LocalOffset: 1 << 20, Length: 1 << 18}
		p.Encode(x.own.Mem[(pieces-1)*slots.PieceSize:])
		if r := x.result(x.service); r.Status != slots.OpOutOfBounds {
			t.Errorf("a list that changes: %v", r.Status)
		}
		if !bytes.Equal(x.far.Mem[2<<20:], make([]byte, 2<<20)) {
			t.Error("bytes beyond the reference have changed")
		}
		x.finish(u)
		settle(x.a, x.b)
		if _, ok := c.outcome(t); !ok {
			t.Error("no answer")
		}
	})
}

// FuzzOps lets a caller and a handler of the domain write anything where requests
// refer to regions and where operations are submitted, while the link is lost from time to
// time. Nothing but the bytes that the
// caller may give away changes, and nothing is left over.
func FuzzOps(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, true)
	f.Add(bytes.Repeat([]byte{0, 1, 1, 4, 1, 3, 9, 0, 2, 5, 1, 1, 7, 3}, 40), false)
	f.Add(bytes.Repeat([]byte{1, 0, 3, 1, 0, 2, 2, 7, 200, 4, 6, 5, 1, 2, 9}, 40), true)
	f.Fuzz(func(t *testing.T, in []byte, remote bool) {
		if len(in) > 2000 {
			return
		}
		x := newRegionRig(t, nil)
		if remote {
			x = newRegionRig(t, fabrictest.NewFake())
		}
		foreign := x.addRegion(x.a, 5, 12)
		if remote {
			x.export(foreign)
		}
		s := script(in)
		var calls []*rigCall
		var picked []slots.Run
		ref := func() slots.Ref {
			ids := []slots.RegionID{x.far.ID, foreign.ID, x.own.ID, 0, slots.RegionID(s.word())}
			r := slots.Ref{Region: ids[s.n(5)], Rights: slots.Rights(s.n(9)), Offset: uint64(s.n(4)) << 19, Length: uint64(s.n(3)) << 18}
			if s.n(8) == 0 {
				r.Offset, r.Length = s.word(), s.word()
			}
			return r
		}
		for step := 0; len(s) > 0 && step < 500; step++ {
			switch s.n(7) {
			case 0:
				if c := x.call(x.caller, ref(), ref()); c != nil {
					calls = append(calls, c)
				}
			case 1:
				if h, ok := x.service.rings.Down.Pop(); ok {
					if u, ok := x.in.Ring.Pick(h.Index(), rigService); ok {
						picked = append(picked, u)
					}
				}
			case 2, 3:
				var u slots.Run
				if len(picked) > 0 {
					u = picked[s.n(len(picked))]
				}
				o := op(u, slots.OpKind(s.n(7)), uint64(s.n(6))<<17, uint64(s.n(5))<<17, x.own)
				o.Ref, o.LocalOffset = byte(s.n(3)), uint64(s.n(40))<<17
				if s.n(8) == 0 {
					o.Offset, o.Length = s.word(), s.word()
				}
				x.service.ops.Submit(&o)
				x.b.bells.MarkWorker(rigService)
			case 4:
				if n := len(picked); n > 0 {
					x.finish(picked[n-1])
					picked = picked[:n-1]
				}
			case 5:
				if remote && s.n(4) == 0 { // it takes its time
					x.loseLink()
					x.a.a.cycle()
					x.b.a.cycle()
					x.regainLink(x.far, foreign)
				}
			default:
				x.a.a.cycle()
				x.b.a.cycle()
			}
			var r slots.Result
			for x.service.ops.Take(&r) {
			}
			for i := 0; i < len(calls); i++ {
				if _, ok := calls[i].outcome(t); ok {
					calls = append(calls[:i], calls[i+1:]...)
				}
			}
		}
		for _, u := range picked {
			x.finish(u)
		}
		for range 10 {
			settle(x.a, x.b)
			for h, ok := x.service.rings.Down.Pop(); ok; h, ok = x.service.rings.Down.Pop() {
				if u, ok := x.in.Ring.Pick(h.Index(), rigService); ok {
					x.finish(u)
				}
			}
		}
		if remote && x.out.End == nil {
			t.Error("the lane is down")
		}
		if !bytes.Equal(foreign.Mem, make([]byte, rigRegion)) {
			t.Error("a region of another worker has changed")
		}
		if x.far.refs != 0 || x.own.refs != 0 {
			t.Errorf("regions are held %d and %d times", x.far.refs, x.own.refs)
		}
		for _, c := range calls {
			if _, ok := c.outcome(t); !ok {
				t.Error("a call has no outcome")
			}
		}
	})
}
