package agent

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/slots"
)

// accompany makes an agent believe that somebody waits for something small, for good.
func accompany(a *Agent) {
	for i := range a.company.seen {
		a.company.seen[i] = 1 << 62
	}
}

// Few small messages leave an agent to large operations, some more do not, until they are a while ago.
func TestAlone(t *testing.T) {
	a := &Agent{now: 10 * quiet}
	if !a.alone() {
		t.Error("nobody was there, and it is not alone")
	}
	pass := func(small uint64, time int64) {
		a.company.met += small
		a.company.look(a.now)
		a.now += time
	}
	for range 20 {
		pass(few-1, quiet+1)
		if !a.alone() {
			t.Fatal("not alone in spite of few small messages")
		}
	}
	for range few {
		pass(1, quiet/few)
	}
	if a.alone() {
		t.Error("alone with small messages one after the other")
	}
	pass(0, quiet)
	if !a.alone() {
		t.Error("not alone a while after the last small message")
	}
	pass(1000, 1)
	if a.alone() {
		t.Error("alone with many small messages at once")
	}
}

// What an agent takes for small, on the node of the handler and on that of the caller.
func TestCompany(t *testing.T) {
	large := func(x *regionRig, kind slots.OpKind) {
		_, u := x.begin(whole(x.far, slots.AllRights))
		x.submit(x.service, op(u, kind, 0, rigRegion, x.own))
		x.settled(u)
	}
	list := func(x *regionRig, pieces int, size uint32) {
		_, u := x.begin(whole(x.far, slots.AllRights))
		for k := range pieces {
			p := slots.Piece{Offset: uint64(k) * uint64(size), Local: x.own.ID, Length: size}
			p.Encode(x.own.Mem[k*slots.PieceSize:])
		}
		x.submit(x.service, op(u, slots.OpWriteList, 0, uint64(pieces), x.own))
		x.settled(u)
	}
	for name, tt := range map[string]struct {
		do func(x *regionRig)
		// How often it is met, by the agents of the handler's and of the caller's node.
		handler, caller uint64
	}{
		"a call":              {func(x *regionRig) { _, u := x.begin(); x.finish(u) }, 1, 1},
		"a large write":       {func(x *regionRig) { large(x, slots.OpWrite) }, 0, 0},
		"a large read":        {func(x *regionRig) { large(x, slots.OpRead) }, 0, 0},
		"a list of much":      {func(x *regionRig) { list(x, 8, 128<<10) }, 0, 0},
		"a list of little":    {func(x *regionRig) { list(x, 8, 1<<10) }, 1, 0},
		"an atomic operation": {func(x *regionRig) { large(x, slots.OpFetchAdd) }, 1, 0},
		"a small write": {func(x *regionRig) {
			_, u := x.begin(whole(x.far, slots.AllRights))
			x.submit(x.service, op(u, slots.OpWrite, 0, chunkSize, x.own))
			x.settled(u)
		}, 1, 0},
		"the beginning of an exchange": {func(x *regionRig) {
			_, u := x.begin()
			x.finishAs(u, slots.FlagPart)
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRegionRig(t, fabrictest.NewFake())
			tt.do(x)
			settle(x.a, x.b)
			if h, c := x.b.a.company.met, x.a.a.company.met; h != tt.handler || c != tt.caller {
				t.Errorf("met %d times by the handler's agent, want %d; %d times by the caller's, want %d", h, tt.handler, c, tt.caller)
			}
		})
	}
}

// settled waits for an operation of a picked request, and answers that.
func (x *regionRig) settled(u slots.Run) {
	x.t.Helper()
	if r := x.result(x.service); r.Status != slots.OpOK {
		x.t.Fatalf("an operation: %v", r.Status)
	}
	x.finish(u)
}

// Large operations move in large steps and have much under way while nobody waits for anything
// small, and little as soon as somebody does.
func TestRoomForLargeOperations(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	_, u := x.begin(whole(x.far, slots.RightWrite))
	// most returns the largest step of an operation on everything, and the most that was under way.
	most := func() (step, flying int) {
		t.Helper()
		x.submit(x.service, op(u, slots.OpWrite, 0, rigRegion, x.own))
		for n := 0; x.service.ops.Empty(); n++ {
			if n > 1000 {
				t.Fatal("an operation takes for ever")
			}
			x.b.a.cycle()
			if e := x.in.Peer.Mover.End; e != nil {
				for i := range e.posts {
					step = max(step, e.posts[i].size)
				}
				flying = max(flying, e.inFlight)
			}
			x.a.a.cycle()
		}
		if r := x.result(x.service); r.Status != slots.OpOK {
			t.Fatal(r.Status)
		}
		return step, flying
	}
	if step, flying := most(); step != roomyChunk || flying != roomyWindow {
		t.Errorf("alone: steps of %d bytes, %d under way, want %d and %d", step, flying, roomyChunk, roomyWindow)
	}
	for range few {
		_, small := x.begin()
		x.finish(small)
		settle(x.a, x.b)
	}
	if step, flying := most(); step != chunkSize || flying != bulkWindow {
		t.Errorf("with small calls: steps of %d bytes, %d under way, want %d and %d", step, flying, chunkSize, bulkWindow)
	}
	for i := range x.b.a.company.seen {
		x.b.a.company.seen[i] -= quiet // time goes by
	}
	if step, _ := most(); step != roomyChunk {
		t.Errorf("a while after small calls: steps of %d bytes, want %d", step, roomyChunk)
	}
	x.finish(u)
	settle(x.a, x.b)
}

// A worker whose turns were large, or that was parked for memory to be registered, has not saved up
// more than one turn when others come.
func TestTurnsAreNotSavedUp(t *testing.T) {
	eachRig(t, func(t *testing.T, x *regionRig) {
		_, u := x.begin(whole(x.far, slots.RightWrite))
		accompany(x.b.a)
		for range 3 {
			x.submit(x.service, op(u, slots.OpWrite, 0, rigRegion, x.own))
		}
		x.b.a.cycle()
		m := x.b.d.near
		if x.a != x.b {
			m = x.in.Peer.Mover
		}
		f := m.flows[x.service.id]
		if f == nil || f.head == nil {
			t.Fatal("nothing is under way")
		}
		f.deficit = 100 * roomyChunk
		x.a.a.cycle()
		x.b.a.cycle()
		x.b.a.cycle()
		if f.head == nil || f.deficit > chunkSize {
			t.Errorf("a deficit of %d bytes, want at most %d", f.deficit, chunkSize)
		}
		x.finish(u)
		settle(x.a, x.b)
	})
}

// On one node a call is met once, not once for each end.
func TestCompanyOnOneNode(t *testing.T) {
	x := newRegionRig(t, nil)
	_, u := x.begin()
	x.finish(u)
	settle(x.a, x.b)
	if met := x.a.a.company.met; met != 1 {
		t.Errorf("met %d times", met)
	}
}
