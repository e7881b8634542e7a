package agent

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
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
			x.b.d.abandon(func(o *Op) bool { return o.worker.ID == rigService }, slots.OpExpired)
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
					x.loseLink()
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

// Of two connections that the peer asks for, the one that it asked for last is its connection, however
// late the other is made.
func TestLateAccept(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	p := x.out.Peer
	talk := new(liveTalk)
	var ends []*PassiveEnd
	for n := range uint64(2) {
		e := &PassiveEnd{Agent: x.a.a, Tag: 500 + n, Opening: Opening{talk, 1 + n}}
		if err := p.Expect(e.Opening); err != nil {
			t.Fatal(err)
		}
		var err error
		e.Endpoint, err = x.pd.CreateEndpoint(fabric.EndpointAttr{CQ: x.a.a.CQs[0], Tag: e.Tag, SendDepth: 1, RecvDepth: 1})
		if err != nil {
			t.Fatal(err)
		}
		remote, err := NewActiveEnd(x.b.a, x.b.dev, x.b.a.CQs[0], 600+n, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { remote.Over = true; remote.Release() })
		var wg sync.WaitGroup
		wg.Go(func() { err = e.Endpoint.Connect(context.Background(), remote.Endpoint.Address(), fabric.Passive) })
		rerr := remote.Endpoint.Connect(context.Background(), e.Endpoint.Address(), fabric.Active)
		if wg.Wait(); err != nil || rerr != nil {
			t.Fatal(err, rerr)
		}
		ends = append(ends, e)
	}
	if err := p.Accept(ends[1]); err != nil {
		t.Fatal(err)
	}
	if err := p.Accept(ends[0]); !errors.Is(err, errReplaced) || p.Passive != ends[1] {
		t.Errorf("the first one is accepted late: %v", err)
	}
	if err := p.Expect(ends[0].Opening); !errors.Is(err, errReplaced) || p.Passive != ends[1] {
		t.Errorf("the first one is expected late: %v", err)
	}
	if err := ends[0].Endpoint.Close(); err != nil {
		t.Error(err)
	}
}

// liveTalk is a session that lives.
type liveTalk struct{ _ int }

func (*liveTalk) Reason() error { return nil }

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
	other := x.addRegion(x.b, 4, rigService)
	e.asked[other] = true
	other.hold()
	e.Close()
	if kept.closed != 1 || e.PD == nil {
		t.Errorf("closed %d times while a registration is under way; all is released: %v", kept.closed, e.PD == nil)
	}
	late, err := e.PD.Register(other.Mem, 0)
	if err != nil {
		t.Fatal(err)
	}
	if x.in.Peer.Mover.Registered(e, other, late); kept.closed != 1 || e.PD != nil {
		t.Errorf("closed %d times; all is released: %v", kept.closed, e.PD == nil)
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
