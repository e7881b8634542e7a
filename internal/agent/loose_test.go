package agent

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// breakLoose breaks the connection of a rig as soon as something is under way on it, and returns what
// opens the next one, which is not opened before.
func (x *regionRig) breakLoose(t *testing.T) (open func()) {
	t.Helper()
	m := x.in.Peer.Mover
	for n := 0; m.End == nil || m.End.next == 1; n++ {
		if n > 20 {
			t.Fatal("nothing is under way")
		}
		x.b.a.cycle()
	}
	connect := m.Connect
	m.Connect = func(attempt uint64) bool {
		m.Connect = connect
		open = func() { connect(attempt) }
		return true
	}
	m.Broken(nil)
	m.move()
	if open == nil || !m.Uncertain() {
		t.Fatalf("no connection is asked for, or all is certain: %d work requests", len(m.redo))
	}
	return open
}

// What was handed to a connection that is lost may still arrive. Operations that are given up meanwhile,
// whatever the reason, end when the peer has closed that connection, which it does before it accepts the
// next one or makes another session. Nothing of them is done again.
func TestGivenUpWhileLoose(t *testing.T) {
	for name, giveUp := range map[string]func(x *regionRig) slots.OpStatus{
		"lane":  func(x *regionRig) slots.OpStatus { x.in.Down(); return slots.OpLost },
		"owner": func(x *regionRig) slots.OpStatus { x.in.Peer.Revoked(x.far.ID); return slots.OpExpired },
		"handler": func(x *regionRig) slots.OpStatus {
			x.b.d.abandon(func(o *operation) bool { return o.worker.ID == rigService }, slots.OpExpired)
			return slots.OpExpired
		},
	} {
		for end, link := range map[string]bool{"next connection": false, "next session": true} {
			t.Run(name+", "+end, func(t *testing.T) {
				x := newRegionRig(t, fabrictest.NewFake())
				_, u := x.begin(whole(x.far, slots.AllRights))
				x.submit(x.service, op(u, slots.OpWrite, 0, 3<<20, x.own))
				open := x.breakLoose(t)
				want := giveUp(x)
				settle(x.a, x.b)
				var r slots.Result
				if x.service.ops.Take(&r) {
					t.Fatalf("an operation whose bytes may still arrive has ended: %v", r.Status)
				}
				if x.in.records[u.Index].grants == nil {
					t.Fatal("the call has ended before its operation")
				}
				if link {
					x.loseLink() // its answer waits for the next one
					if x.b.a.cycle(); x.service.ops.Empty() {
						t.Error("the operation goes on without a session")
					}
					x.regainLink(x.far)
				} else {
					open()
				}
				if r = x.result(x.service); r.Status != want {
					t.Errorf("the operation ended with %v, want %v", r.Status, want)
				}
				if e := x.in.Peer.Mover.End; e != nil && e.next != 1 {
					t.Errorf("%d work requests of an operation that was given up are done again", e.next-1)
				}
				x.finish(u)
				settle(x.a, x.b)
			})
		}
	}
}

// A connection that breaks too often gives up on what is under way: that ends with the next connection, too.
func TestRedoLimitWhileLoose(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	c, u := x.begin(whole(x.far, slots.AllRights))
	m := x.in.Peer.Mover
	x.submit(x.service, op(u, slots.OpWrite, 0, 3<<20, x.own))
	open := x.breakLoose(t)
	for range redoLimit {
		open()
		open = x.breakLoose(t)
	}
	settle(x.a, x.b)
	var r slots.Result
	if x.service.ops.Take(&r) {
		t.Fatalf("an operation whose bytes may still arrive has ended: %v", r.Status)
	}
	open()
	if r = x.result(x.service); r.Status != slots.OpLost || m.End.next != 1 {
		t.Errorf("the operation ended with %v, and %d work requests are done again", r.Status, m.End.next-1)
	}
	x.finish(u)
	settle(x.a, x.b)
	if _, ok := c.outcome(t); !ok {
		t.Error("no answer")
	}
}

// What is to be done again on a connection that is up does not make its loss worse: nothing of it is loose.
func TestCertainOnceConnected(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	c, u := x.begin(whole(x.far, slots.AllRights))
	m := x.in.Peer.Mover
	x.submit(x.service, op(u, slots.OpWrite, 0, 3<<20, x.own))
	open := x.breakLoose(t)
	open()
	for n := 0; m.End == nil; n++ {
		if n > 20 {
			t.Fatal("no connection")
		}
		x.b.a.Commands.run()
	}
	if m.End.next != 1 || len(m.redo) == 0 {
		t.Fatalf("%d work requests are posted already", m.End.next-1)
	}
	x.refuse = true
	if m.Broken(nil); m.Uncertain() {
		t.Error("what was not sent again may still arrive")
	}
	if r := x.result(x.service); r.Status != slots.OpLost {
		t.Errorf("without another connection the operation ended with %v", r.Status)
	}
	x.finish(u)
	settle(x.a, x.b)
	if _, ok := c.outcome(t); !ok {
		t.Error("no answer")
	}
}

// A connection that is to be made anew after so many regions is when nothing is under way on it: nothing fails, also no atomic
// operations, which could not be done again.
func TestConnectionIsRenewed(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	c, u := x.begin(whole(x.far, slots.AllRights))
	m := x.in.Peer.Mover
	m.Renews = true
	const rounds, each = 5, 60
	for range rounds {
		for range each {
			add := op(u, slots.OpFetchAdd, 0, 8, x.own)
			add.Swap = 1
			x.submit(x.service, add)
			x.submit(x.service, op(u, slots.OpWrite, 4096, 64<<10, x.own))
		}
		for n := 0; m.End == nil || m.End.next == m.End.done; n++ {
			if n > 20 {
				t.Fatal("nothing is under way")
			}
			x.b.a.cycle()
		}
		m.takenBack = RenewAfter
		for range 2 * each {
			if r := x.result(x.service); r.Status != slots.OpOK {
				t.Fatalf("an operation ended with %v", r.Status)
			}
		}
	}
	if x.opened != 1+rounds {
		t.Errorf("%d connections", x.opened)
	}
	if n := shm.Uint64At(x.far.Mem, 0).Load(); n != rounds*each {
		t.Errorf("%d additions were done, of %d", n, rounds*each)
	}
	x.finish(u)
	settle(x.a, x.b)
	if _, ok := c.outcome(t); !ok {
		t.Error("no answer")
	}
}

// A connection that is closed while memory is being registered with it keeps none of the other memory
// registered: that may be unmapped before.
func TestCloseBesideRegistration(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	e, err := NewActiveEnd(x.b.a, x.b.dev, x.b.a.CQs[0], 600, "")
	if err != nil {
		t.Fatal(err)
	}
	mr, err := e.PD.Register(x.own.Mem, 0)
	if err != nil {
		t.Fatal(err)
	}
	kept := &countedRegion{MemoryRegion: mr}
	e.locals[x.own] = kept
	var late []*countedRegion
	others := []*Region{x.addRegion(x.b, 4, rigService), x.addRegion(x.b, 5, rigService)}
	for _, r := range others {
		e.asked[r] = true
		r.hold()
	}
	e.Close()
	if kept.closed != 1 || e.PD == nil {
		t.Errorf("closed %d times while a registration is under way; all is released: %v", kept.closed, e.PD == nil)
	}
	for i, r := range others {
		mr, err := e.PD.Register(r.Mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		late = append(late, &countedRegion{MemoryRegion: mr})
		r.OnQuiet = func() {
			if late[i].closed != 1 {
				t.Errorf("region %d is free to be unmapped, and its registration was closed %d times", i, late[i].closed)
			}
		}
		r.Free()
		x.in.Peer.Mover.Registered(e, r, late[i])
	}
	if kept.closed != 1 || e.PD != nil {
		t.Errorf("closed %d times; all is released: %v", kept.closed, e.PD == nil)
	}
}

// An agent that closes a connection does not close its registrations one after the other: another goroutine does, and until then
// their regions stay mapped, and the protection domain is there.
func TestCloseLeavesRegistrationsToOthers(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	e, err := NewActiveEnd(x.b.a, x.b.dev, x.b.a.CQs[0], 600, "")
	if err != nil {
		t.Fatal(err)
	}
	e.mover = x.in.Peer.Mover
	var task func()
	e.mover.Spawn = func(f func()) bool { task = f; return true }
	const regions = 3
	var kept []*countedRegion
	free := 0
	for i := range regions {
		r := x.addRegion(x.b, uint32(4+i), rigService)
		mr, err := e.PD.Register(r.Mem, 0)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, &countedRegion{MemoryRegion: mr})
		e.locals[r] = kept[i]
		r.OnQuiet = func() {
			if kept[i].closed != 1 {
				t.Errorf("region %d is free to be unmapped, and its registration was closed %d times", i, kept[i].closed)
			}
			free++
		}
	}
	freed := slices.Collect(maps.Keys(e.locals))
	e.Close()
	for _, r := range freed {
		r.Free()
		e.Forget(r)
	}
	for i, mr := range kept {
		if mr.closed != 0 {
			t.Errorf("the agent has closed registration %d", i)
		}
	}
	if task == nil || free != 0 || e.PD == nil {
		t.Fatalf("%d regions are free to be unmapped, all is released: %v, somebody is to do it: %v", free, e.PD == nil, task != nil)
	}
	over := make(chan struct{})
	go func() { defer close(over); task() }()
	for done := false; !done; {
		select {
		case <-over:
			done = true
		case <-time.After(time.Millisecond):
			x.b.a.cycle()
		case <-t.Context().Done():
			t.Fatal("the goroutine does not end")
		}
	}
	if free != regions || e.PD != nil {
		t.Errorf("%d regions are free to be unmapped, want %d; all is released: %v", free, regions, e.PD == nil)
	}
}

// A connection that ends while the registration of a region that was freed is being closed waits for that with its protection domain,
// which devices do not close before.
func TestCloseWaitsForWhatIsForgotten(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	e, err := NewActiveEnd(x.b.a, x.b.dev, x.b.a.CQs[0], 600, "")
	if err != nil {
		t.Fatal(err)
	}
	r := x.addRegion(x.b, 4, rigService)
	if e.locals[r], err = e.PD.Register(r.Mem, 0); err != nil {
		t.Fatal(err)
	}
	r.Free()
	mr := e.Forget(r)
	if again := e.Forget(r); mr == nil || again != nil {
		t.Fatalf("forgotten: %v, and again: %v", mr, again)
	}
	e.Close()
	if e.PD == nil {
		t.Error("the protection domain is closed before a registration in it")
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
	e.Closed()
	if e.PD != nil {
		t.Error("the protection domain is left for ever")
	}
}

// countedRegion counts how often a registration is closed.
type countedRegion struct {
	fabric.MemoryRegion
	closed int
}

func (r *countedRegion) Close() error {
	r.closed++
	return r.MemoryRegion.Close()
}
