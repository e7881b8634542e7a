package agent

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// regionRig is two sides with a lane between them, a worker that makes requests and
// one that handles them, regions of both, and the connection for operations. What
// conductors do is done by the rig, between two cycles.
type regionRig struct {
	t       testing.TB
	a, b    *side
	out     *OutLane
	in      *InLane
	caller  *rigWorker
	service *rigWorker
	// far is the caller's region, own the service's.
	far, own *Region
	pd       fabric.ProtectionDomain // of the exports
	exports  []fabric.MemoryRegion
	tag      uint64
	// opened counts connections; refuse keeps more from being opened.
	opened int
	refuse bool
}

const (
	rigCaller = 11
	rigRegion = 4 << 20
)

// newRegionRig makes a rig over a fabric, or within one side if net is nil.
func newRegionRig(t testing.TB, net fabric.Provider) *regionRig {
	x := &regionRig{t: t, tag: 100}
	if net == nil {
		x.a = newSide(t, nil)
		x.b = x.a
		x.out, x.in = x.a.localLane(t)
	} else {
		x.a, x.b, x.out, x.in = remoteLaneOver(t, net)
		x.out.Peer, x.in.Peer = x.a.d.Peer("b"), x.b.d.Peer("a")
		var err error
		if x.pd, err = x.a.dev.AllocPD(); err != nil {
			t.Fatal(err)
		}
		m := x.in.Peer.Mover
		m.Connect = func(attempt uint64) bool {
			x.b.a.Commands.Do(func() { x.connect(attempt) })
			return true
		}
		m.Register = func(e *ActiveEnd, r *Region) bool {
			x.b.a.Commands.Do(func() {
				mr, err := e.PD.Register(r.Mem, 0)
				if err != nil {
					t.Error(err)
				}
				m.Registered(e, r, mr)
			})
			return true
		}
	}
	x.caller, x.service = x.a.addWorker(rigCaller), x.b.addService()
	x.far, x.own = x.addRegion(x.a, 1, rigCaller), x.addRegion(x.b, 2, rigService)
	if net != nil {
		x.export(x.far)
	}
	t.Cleanup(x.close)
	return x
}

func (x *regionRig) addRegion(s *side, index uint32, owner int) *Region {
	r := &Region{ID: slots.MakeRegionID(index, 7), Owner: owner, Mem: shm.AlignedBytes(rigRegion)}
	s.d.AddRegion(r)
	return r
}

// export does what the conductors do for an export message.
func (x *regionRig) export(r *Region) {
	mr, err := x.pd.Register(r.Mem, fabric.AccessRemoteWrite|fabric.AccessRemoteRead|fabric.AccessRemoteAtomic)
	if err != nil {
		x.t.Fatal(err)
	}
	x.exports = append(x.exports, mr)
	x.in.Peer.Imported(r.ID, mr.Remote())
	r.Exported = append(r.Exported, x.out.Peer)
}

// connect opens the connection for operations.
func (x *regionRig) connect(attempt uint64) {
	if x.refuse {
		if x.in.Peer.Mover.Uncertain() {
			return // the conductor ends the session instead
		}
		_ = x.in.Peer.Mover.Connected(attempt, nil)
		return
	}
	x.opened++
	x.tag += 2
	e, err := NewActiveEnd(x.b.a, x.b.dev, x.b.a.CQs[0], x.tag, "")
	if err != nil {
		x.t.Fatal(err)
	}
	ep, err := x.pd.CreateEndpoint(fabric.EndpointAttr{CQ: x.a.a.CQs[0], Tag: x.tag + 1, SendDepth: 1, RecvDepth: 1})
	if err != nil {
		x.t.Fatal(err)
	}
	var wg sync.WaitGroup
	var errs [2]error
	wg.Go(func() { errs[0] = e.Endpoint.Connect(context.Background(), ep.Address(), fabric.Active) })
	wg.Go(func() { errs[1] = ep.Connect(context.Background(), e.Endpoint.Address(), fabric.Passive) })
	wg.Wait()
	if errs[0] != nil || errs[1] != nil {
		x.t.Fatal(errs)
	}
	p := x.out.Peer
	if p.Passive != nil {
		p.Passive.Close(x.a.a)
	}
	p.Passive = &PassiveEnd{Agent: x.a.a, Tag: x.tag + 1, Endpoint: ep, peer: p}
	x.a.a.ends[x.tag+1] = p.Passive
	if err := ep.Activate(); err != nil {
		x.t.Fatal(err)
	}
	if err := x.in.Peer.Mover.Connected(attempt, e); err != nil {
		x.t.Fatal(err)
	}
}

// close checks that nothing is held any more once everything is down.
func (x *regionRig) close() {
	if x.pd != nil {
		x.out.Down("end of test")
		x.in.Down()
		settle(x.a, x.b)
		for _, s := range []*side{x.a, x.b} {
			p := map[*side]*Peer{x.a: x.out.Peer, x.b: x.in.Peer}[s]
			p.Suspend(s.d)
			p.Forget()
		}
		settle(x.a, x.b)
		for _, mr := range x.exports {
			if err := mr.Close(); err != nil {
				x.t.Error(err)
			}
		}
	}
	x.b.bury(x.service)
	settle(x.a, x.b)
	for _, d := range []*Domain{x.a.d, x.b.d} {
		for _, r := range d.regions {
			if r != nil && r.refs != 0 {
				x.t.Errorf("region %#x is held %d times", uint64(r.ID), r.refs)
			}
		}
		for _, m := range d.Movers {
			for _, f := range m.flows {
				if f.head != nil {
					x.t.Error("operations are left")
				}
			}
		}
		for o := d.spareOps; o != nil; o = o.next {
			if o.grants != nil || o.local != nil {
				x.t.Error("a spare operation holds something")
			}
		}
	}
}

// call publishes a request with references. It returns nil when there is no room.
func (x *regionRig) call(w *rigWorker, refs ...slots.Ref) *rigCall {
	n := len(refs) * slots.RefSize
	u, err := x.out.Ring.Claim(w.id, rigGeometry.RunFor(n))
	if err != nil {
		return nil
	}
	for i := range refs {
		refs[i].Encode(x.out.Ring.Payload(u)[i*slots.RefSize:])
	}
	h := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Length: uint32(n), Kind: slots.KindRequest, Method: rigMethod, Refs: uint8(len(refs))}
	if len(refs) > 0 {
		h.Flags = slots.FlagRefs
	}
	h.Encode(x.out.Ring.Header(u))
	if !x.out.Ring.Publish(u, w.id) {
		x.t.Fatal("not published")
	}
	x.a.bells.MarkLane(rigLane)
	return &rigCall{w: w, ring: x.out.Ring, u: u}
}

// outcome returns the status of an answered request, and whether it is answered.
func (c *rigCall) outcome(t testing.TB) (slots.Status, bool) {
	if !c.ring.Answered(c.u, c.w.id) {
		return 0, false
	}
	var h slots.Header
	if !h.Decode(c.ring.Header(c.u)) {
		t.Error("a damaged answer")
	}
	c.ring.Consume(c.u)
	return h.Status, true
}

// begin lets the request arrive and the service pick it.
func (x *regionRig) begin(refs ...slots.Ref) (*rigCall, slots.Run) {
	x.t.Helper()
	c := x.call(x.caller, refs...)
	settle(x.a, x.b)
	h, ok := x.service.rings.Down.Pop()
	if !ok {
		status, _ := c.outcome(x.t)
		x.t.Fatalf("the request did not arrive: %v", status)
	}
	u, ok := x.in.Ring.Pick(h.Index(), rigService)
	if !ok {
		x.t.Fatal("the request cannot be picked")
	}
	return c, u
}

// finish answers a picked request, whether operations are under way or not.
func (x *regionRig) finish(u slots.Run) { x.finishAs(u, 0) }

func (x *regionRig) finishAs(u slots.Run, flags slots.Flags) {
	h := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer, Flags: flags}
	h.Encode(x.in.Ring.Header(u))
	x.in.Ring.Finish(u, rigService)
	x.service.rings.Up.Push(slots.MakeHint(rigLane, u.Index, u.Ticket))
	x.b.bells.MarkWorker(rigService)
}

// op is an operation on the first reference of a picked request.
func op(u slots.Run, kind slots.OpKind, off, n uint64, local *Region) slots.Op {
	return slots.Op{Kind: kind, Lane: rigLane, Slot: uint32(u.Index), Ticket: u.Ticket, Offset: off, Length: n, Local: local.ID}
}

// submit gives an operation to the daemon.
func (x *regionRig) submit(w *rigWorker, o slots.Op) {
	x.t.Helper()
	if !w.ops.Submit(&o) {
		x.t.Fatal("no room for an operation")
	}
	x.b.bells.MarkWorker(w.id)
}

// result returns the next result, after as many cycles as it takes.
func (x *regionRig) result(w *rigWorker) slots.Result {
	x.t.Helper()
	var r slots.Result
	if w.ops.Take(&r) {
		return r
	}
	settle(x.a, x.b)
	if !w.ops.Take(&r) {
		x.t.Fatal("no result")
	}
	return r
}

func whole(r *Region, rights slots.Rights) slots.Ref {
	return slots.Ref{Region: r.ID, Rights: rights, Length: rigRegion}
}

// eachRig runs a test over the fake fabric and within one node.
func eachRig(t *testing.T, f func(t *testing.T, x *regionRig)) {
	t.Run("remote", func(t *testing.T) { f(t, newRegionRig(t, fabrictest.NewFake())) })
	t.Run("local", func(t *testing.T) { f(t, newRegionRig(t, nil)) })
}

// The daemon itself refuses what the library would not submit.
func TestOpRefusals(t *testing.T) {
	eachRig(t, func(t *testing.T, x *regionRig) {
		part := slots.Ref{Region: x.far.ID, Rights: slots.RightRead, Offset: 8, Length: 100}
		c, u := x.begin(whole(x.far, slots.RightWrite|slots.RightAtomic), part)
		other := x.b.addWorker(3)
		foreign := x.addRegion(x.b, 3, 3)
		list := func(pieces ...slots.Piece) slots.Op {
			for i := range pieces {
				pieces[i].Encode(x.own.Mem[i*slots.PieceSize:])
			}
			return op(u, slots.OpWriteList, 0, uint64(len(pieces)), x.own)
		}
		good := slots.Piece{Local: x.own.ID, Length: 8}
		change := func(f func(o *slots.Op)) slots.Op {
			o := op(u, slots.OpWrite, 0, 8, x.own)
			f(&o)
			return o
		}
		for i := range x.own.Mem {
			x.own.Mem[i] = 0xff
		}
		for _, tt := range []struct {
			what string
			o    slots.Op
			want slots.OpStatus
		}{
			{"no kind", change(func(o *slots.Op) { o.Kind = 0 }), slots.OpInvalid},
			{"a kind from nowhere", change(func(o *slots.Op) { o.Kind = 200 }), slots.OpInvalid},
			{"no reference", change(func(o *slots.Op) { o.Ref = 2 }), slots.OpInvalid},
			{"a reference from nowhere", change(func(o *slots.Op) { o.Ref = 255 }), slots.OpInvalid},
			{"no lane", change(func(o *slots.Op) { o.Lane = 4 }), slots.OpExpired},
			{"a lane from nowhere", change(func(o *slots.Op) { o.Lane = 65535 }), slots.OpInvalid},
			{"a slot from nowhere", change(func(o *slots.Op) { o.Slot = 1<<32 - 1 }), slots.OpExpired},
			{"another slot", change(func(o *slots.Op) { o.Slot++ }), slots.OpExpired},
			{"another ticket", change(func(o *slots.Op) { o.Ticket++ }), slots.OpExpired},
			{"no right to read", change(func(o *slots.Op) { o.Kind = slots.OpRead }), slots.OpNotPermitted},
			{"no right to write", change(func(o *slots.Op) { o.Ref = 1 }), slots.OpNotPermitted},
			{"beyond the region", change(func(o *slots.Op) { o.Offset = rigRegion - 7 }), slots.OpOutOfBounds},
			{"an overflow", change(func(o *slots.Op) { o.Offset = ^uint64(0) - 3 }), slots.OpOutOfBounds},
			{"a huge length", change(func(o *slots.Op) { o.Length = ^uint64(0) }), slots.OpOutOfBounds},
			{"beyond the part", change(func(o *slots.Op) { o.Ref, o.Kind, o.Offset = 1, slots.OpRead, 93 }), slots.OpOutOfBounds},
			{"beyond the local memory", change(func(o *slots.Op) { o.LocalOffset = rigRegion - 7 }), slots.OpOutOfBounds},
			{"a local overflow", change(func(o *slots.Op) { o.LocalOffset = ^uint64(0) }), slots.OpOutOfBounds},
			{"no local memory", change(func(o *slots.Op) { o.Local = 0 }), slots.OpNotPermitted},
			{"a stale generation", change(func(o *slots.Op) { o.Local -= 1 << 32 }), slots.OpNotPermitted},
			{"another worker's memory", change(func(o *slots.Op) { o.Local = foreign.ID }), slots.OpNotPermitted},
			{"a misaligned add", change(func(o *slots.Op) { o.Kind, o.Offset = slots.OpFetchAdd, 12 }), slots.OpMisaligned},
			{"an add beyond the end", change(func(o *slots.Op) { o.Kind, o.Offset = slots.OpFetchAdd, rigRegion-4 }), slots.OpOutOfBounds},
			{"too many pieces", change(func(o *slots.Op) { o.Kind, o.Length = slots.OpWriteList, slots.MaxPieces+1 }), slots.OpInvalid},
			{"a table beyond the end", change(func(o *slots.Op) { o.Kind, o.Length, o.LocalOffset = slots.OpWriteList, 2, rigRegion-63 }), slots.OpOutOfBounds},
			{"a piece beyond the end", list(good, slots.Piece{Offset: rigRegion, Local: x.own.ID, Length: 1}), slots.OpOutOfBounds},
		} {
			x.submit(x.service, tt.o)
			if r := x.result(x.service); r.Status != tt.want {
				t.Errorf("%s: %v, want %v", tt.what, r.Status, tt.want)
			}
		}
		x.submit(x.service, list(good, slots.Piece{Local: foreign.ID, Length: 1}))
		if r := x.result(x.service); r.Status != slots.OpNotPermitted {
			t.Errorf("a piece of another worker's memory: %v", r.Status)
		}
		x.submit(other, op(u, slots.OpWrite, 0, 8, foreign))
		if r := x.result(other); r.Status != slots.OpExpired {
			t.Errorf("another worker's call: %v", r.Status)
		}
		x.finish(u)
		settle(x.a, x.b)
		if status, ok := c.outcome(t); !ok || status != slots.StatusOK {
			t.Errorf("the call: %v, %v", status, ok)
		}
		x.submit(x.service, op(u, slots.OpWrite, 0, 8, x.own))
		if r := x.result(x.service); r.Status != slots.OpExpired {
			t.Errorf("after the call: %v", r.Status)
		}
		if !bytes.Equal(x.far.Mem, make([]byte, rigRegion)) {
			t.Error("something was changed")
		}
	})
}

// A worker that answers before its operations are complete does not get its answer
// out before they are.
func TestAnswerWaitsForOps(t *testing.T) {
	eachRig(t, func(t *testing.T, x *regionRig) {
		c, u := x.begin(whole(x.far, slots.RightWrite))
		copy(x.own.Mem, bytes.Repeat([]byte{7}, rigRegion))
		x.submit(x.service, op(u, slots.OpWrite, 0, rigRegion, x.own))
		x.b.a.cycle()
		x.finish(u)
		x.b.a.cycle()
		if !x.in.records[u.Index].active {
			t.Fatal("the answer has not waited")
		}
		settle(x.a, x.b)
		if r := x.result(x.service); r.Status != slots.OpOK {
			t.Error(r.Status)
		}
		if status, ok := c.outcome(t); !ok || status != slots.StatusOK {
			t.Errorf("the call: %v, %v", status, ok)
		}
		if !bytes.Equal(x.far.Mem, x.own.Mem) {
			t.Error("the bytes are not all there")
		}
	})
}

// A region that is freed goes when the last call that refers to it has ended, here
// and there, and no call gets it any more.
func TestFreeWaitsForCalls(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	quiet, returned := 0, 0
	x.far.OnQuiet = func() { quiet++ }
	c, u := x.begin(whole(x.far, slots.RightWrite))
	x.far.Free()
	x.far.Free()
	if late := x.call(x.caller, whole(x.far, slots.RightWrite)); late != nil {
		settle(x.a, x.b)
		if status, ok := late.outcome(t); !ok || status != slots.StatusInvalid {
			t.Errorf("a call with a free region: %v, %v", status, ok)
		}
	}
	x.submit(x.service, op(u, slots.OpWrite, 0, 100, x.own))
	if r := x.result(x.service); r.Status != slots.OpOK {
		t.Errorf("a free region in a call: %v", r.Status)
	}
	x.in.Peer.Withdrawn(x.far.ID, func() { returned++ })
	settle(x.a, x.b)
	if quiet+returned != 0 {
		t.Fatal("the region is gone in the middle of a call")
	}
	x.finish(u)
	settle(x.a, x.b)
	if _, ok := c.outcome(t); !ok || quiet != 1 || returned != 1 {
		t.Errorf("after the call: answered %v, quiet %d, returned %d", ok, quiet, returned)
	}
	x.in.Peer.Withdrawn(x.far.ID, func() { returned++ })
	if returned != 2 {
		t.Error("a region that is not known is not returned")
	}
}

// Requests that refer to what they must not are refused before a handler sees them.
func TestForgedRefs(t *testing.T) {
	eachRig(t, func(t *testing.T, x *regionRig) {
		foreign := x.addRegion(x.a, 9, 12)
		if x.pd != nil {
			x.export(foreign)
		}
		for what, ref := range map[string]slots.Ref{
			"no region":          {Rights: slots.RightRead},
			"another worker's":   whole(foreign, slots.RightRead),
			"another index":      {Region: slots.MakeRegionID(4, 7), Rights: slots.RightRead},
			"a huge index":       {Region: slots.MakeRegionID(1<<32-1, 7), Rights: slots.RightRead},
			"a stale one":        {Region: slots.MakeRegionID(1, 6), Rights: slots.RightRead},
			"no rights":          {Region: x.far.ID, Length: 8},
			"unknown rights":     {Region: x.far.ID, Rights: 8, Length: 8},
			"beyond the end":     {Region: x.far.ID, Rights: slots.RightRead, Offset: 1, Length: rigRegion},
			"beyond all numbers": {Region: x.far.ID, Rights: slots.RightRead, Offset: ^uint64(0), Length: 2},
		} {
			c := x.call(x.caller, whole(x.far, slots.RightRead), ref)
			settle(x.a, x.b)
			if status, ok := c.outcome(t); !ok || status != slots.StatusInvalid {
				t.Errorf("%s: %v, %v", what, status, ok)
			}
		}
		if _, ok := x.service.rings.Down.Pop(); ok {
			t.Error("a request has arrived")
		}
		if x.pd == nil {
			return
		}
		x.far.Exported = nil
		c := x.call(x.caller, whole(x.far, slots.RightRead))
		settle(x.a, x.b)
		if status, ok := c.outcome(t); !ok || status != slots.StatusNotExported {
			t.Errorf("not exported: %v, %v", status, ok)
		}
		// The other end looks again: what it has not heard of it does not give.
		x.far.Exported = append(x.far.Exported, x.out.Peer)
		clear(x.in.Peer.imports)
		c = x.call(x.caller, whole(x.far, slots.RightRead))
		settle(x.a, x.b)
		if status, ok := c.outcome(t); !ok || status != slots.StatusNotExported {
			t.Errorf("not imported: %v, %v", status, ok)
		}
	})
}
