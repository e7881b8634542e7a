package agent

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/slots"
)

// loseLink does what the conductors do when the session ends.
func (x *regionRig) loseLink() {
	x.in.Peer.Suspend(x.b.d)
	x.out.Peer.Suspend(x.a.d)
	for _, mr := range x.exports {
		if err := mr.Close(); err != nil {
			x.t.Error(err)
		}
	}
	x.exports = nil
	if err := x.pd.Close(); err != nil {
		x.t.Error(err)
	}
	x.out.Suspend()
	x.in.Suspend()
}

// regainLink does what they do when there is another one: the regions are registered
// and named again, and then the lane is opened.
func (x *regionRig) regainLink(regions ...*Region) {
	x.t.Helper()
	var err error
	if x.pd, err = x.a.dev.AllocPD(); err != nil {
		x.t.Fatal(err)
	}
	for _, r := range regions {
		r.Exported = nil
		x.export(r)
	}
	x.in.Peer.Resume()
	x.tag += 2
	reconnect(x.t, x.a, x.b, x.out, x.in, x.tag+1000)
}

// batch are operations of all kinds.
type batch struct {
	status map[slots.OpKind][]slots.OpStatus
	kinds  map[uint64]slots.OpKind
}

// submitBatch gives the daemon one operation of each kind, and one more add.
func (x *regionRig) submitBatch(u slots.Run) *batch {
	b := &batch{status: map[slots.OpKind][]slots.OpStatus{}, kinds: map[uint64]slots.OpKind{}}
	const n = 300 << 10
	for k := range uint64(4) {
		p := slots.Piece{Offset: 2<<20 + k<<17, Local: x.own.ID, LocalOffset: 1<<20 + k<<10, Length: 100 << 10}
		p.Encode(x.own.Mem[k*slots.PieceSize:])
	}
	for i, o := range []slots.Op{
		op(u, slots.OpWrite, 1<<20, n, x.own), op(u, slots.OpFetchAdd, 0, 8, x.own), op(u, slots.OpRead, 3<<20, n, x.own),
		op(u, slots.OpWriteList, 0, 4, x.own), op(u, slots.OpCompareSwap, 8, 8, x.own), op(u, slots.OpFetchAdd, 0, 8, x.own),
	} {
		o.Cookie = uint64(i)
		switch o.Kind {
		case slots.OpWrite:
			o.LocalOffset = 1 << 20
		case slots.OpRead:
			o.LocalOffset = 2 << 20
		case slots.OpFetchAdd:
			o.Swap = 1
		case slots.OpCompareSwap:
			o.Compare, o.Swap = 0, 5
		}
		b.kinds[o.Cookie] = o.Kind
		x.submit(x.service, o)
	}
	return b
}

// reap takes the results that are there and returns how many are missing.
func (b *batch) reap(t *testing.T, w *rigWorker) int {
	t.Helper()
	var r slots.Result
	for w.ops.Take(&r) {
		kind, ok := b.kinds[r.Cookie]
		if !ok {
			t.Fatalf("a result of nothing, or twice: %+v", r)
		}
		delete(b.kinds, r.Cookie)
		b.status[kind] = append(b.status[kind], r.Status)
	}
	return len(b.kinds)
}

// count returns how often the operations of a kind ended so.
func (b *batch) count(kind slots.OpKind, status slots.OpStatus) (n int) {
	for _, s := range b.status[kind] {
		if s == status {
			n++
		}
	}
	return n
}

// A link that is lost at any step of operations, once or over and over: reads and writes
// are done, every byte is right, and no atomic operation is done twice. Those of which
// nobody knows are said to be lost, and not before nothing happens to them any more.
func TestOpsOverLinks(t *testing.T) {
	lost, again := 0, 0
	for step := 0; step < 200; step++ {
		x := newRegionRig(t, fabrictest.NewFake())
		if step%2 == 0 {
			accompany(x.b.a) // small steps; large ones else
		}
		for i := range x.own.Mem {
			x.own.Mem[i], x.far.Mem[i] = byte(i*7), byte(i*13)
		}
		for i := range 16 {
			x.far.Mem[i] = 0
		}
		c, u := x.begin(whole(x.far, slots.AllRights))
		b := x.submitBatch(u)
		cuts := 1 + step%3
		missing := 0
		for cut := range cuts {
			for k := range step / 3 >> cut {
				[]*side{x.b, x.b, x.a}[k%3].a.cycle()
			}
			missing = b.reap(t, x.service)
			x.loseLink()
			again += len(x.in.Peer.Mover.redo)
			settle(x.a, x.b)
			if n := b.reap(t, x.service); n != missing {
				t.Fatalf("step %d: %d operations ended without a link", step, missing-n)
			}
			x.regainLink(x.far)
		}
		settle(x.a, x.b)
		if n := b.reap(t, x.service); n != 0 {
			t.Fatalf("step %d: %d operations have not ended", step, n)
		}
		x.finish(u)
		settle(x.a, x.b)
		if status, ok := c.outcome(t); !ok || status != slots.StatusOK {
			t.Errorf("step %d: the call: %v, %v", step, status, ok)
		}
		for _, kind := range []slots.OpKind{slots.OpWrite, slots.OpRead, slots.OpWriteList} {
			if b.count(kind, slots.OpOK) != 1 {
				t.Errorf("step %d: %v: %v", step, kind, b.status[kind])
			}
		}
		done, unknown := b.count(slots.OpFetchAdd, slots.OpOK), b.count(slots.OpFetchAdd, slots.OpLost)
		if sum := int(x.far.Mem[0]); done+unknown != 2 || sum < done || sum > done+unknown {
			t.Errorf("step %d: the sum is %d: %v", step, sum, b.status)
		}
		lost += unknown
		swapped := b.count(slots.OpCompareSwap, slots.OpOK)
		if v := x.far.Mem[8]; swapped+b.count(slots.OpCompareSwap, slots.OpLost) != 1 || swapped == 1 && v != 5 {
			t.Errorf("step %d: the word is %d: %v", step, v, b.status)
		}
		const n = 300 << 10
		if !bytes.Equal(x.far.Mem[1<<20:1<<20+n], x.own.Mem[1<<20:1<<20+n]) || !bytes.Equal(x.own.Mem[2<<20:2<<20+n], x.far.Mem[3<<20:3<<20+n]) {
			t.Fatalf("step %d: wrong bytes", step)
		}
		for k := range 4 {
			from, to := 1<<20+k<<10, 2<<20+k<<17
			if !bytes.Equal(x.far.Mem[to:to+100<<10], x.own.Mem[from:from+100<<10]) {
				t.Fatalf("step %d: piece %d is wrong", step, k)
			}
		}
		if missing == 0 && cuts == 1 {
			if lost == 0 || again == 0 {
				t.Errorf("%d atomic operations lost, %d work requests done again: nothing was tested", lost, again)
			}
			return
		}
	}
	t.Error("the operations take for ever")
}

// What a handler has of a region ends while the link is lost, or when it is back: its
// operations end, and no byte changes afterwards.
func TestRegionsEndBetweenLinks(t *testing.T) {
	for name, tt := range map[string]struct {
		// before and during the gap, and when the link is back; the region is named
		// again if named is true.
		before, during, after func(x *regionRig)
		named                 bool
		want                  slots.OpStatus
	}{
		"not named again": {want: slots.OpLost},
		"revoked when the link is back": {
			after: func(x *regionRig) { x.in.Peer.Revoked(x.far.ID) }, want: slots.OpExpired,
		},
		"taken back before": {before: func(x *regionRig) { x.in.Peer.Withdrawn(x.far.ID, func() {}) }, want: slots.OpLost},
		"named with another size": {
			after: func(x *regionRig) {
				key := x.in.Peer.imports[x.far.ID].key
				key.Len--
				if x.in.Peer.Imported(x.far.ID, key) {
					x.t.Error("another size is taken")
				}
			}, want: slots.OpLost,
		},
		"the lane is given up": {during: func(x *regionRig) { x.in.Down() }, want: slots.OpLost},
		"the link is given up": {during: func(x *regionRig) { x.in.Peer.Forget() }, want: slots.OpLost},
		"the handler's process dies": {
			during: func(x *regionRig) {
				x.b.bury(x.service)
				x.own.Free()
			}, named: true, want: slots.OpExpired,
		},
	} {
		for _, cycles := range []int{0, 1, 2, 4} {
			t.Run(fmt.Sprintf("%s, after %d", name, cycles), func(t *testing.T) {
				x := newRegionRig(t, fabrictest.NewFake())
				accompany(x.b.a) // small steps
				copy(x.own.Mem, bytes.Repeat([]byte{7}, rigRegion))
				c, u := x.begin(whole(x.far, slots.AllRights))
				const ops = 4
				for range ops {
					x.submit(x.service, op(u, slots.OpWrite, 0, rigRegion, x.own))
				}
				for range 1 + cycles {
					x.b.a.cycle()
				}
				do := func(f func(*regionRig)) {
					if f != nil {
						f(x)
					}
				}
				do(tt.before)
				x.loseLink()
				after := bytes.Clone(x.far.Mem)
				do(tt.during)
				settle(x.a, x.b)
				gone := tt.during != nil
				if gone && x.in.Peer.Mover.busy() {
					t.Error("something is left to be done")
				}
				do(tt.after)
				if x.in.records[u.Index].active {
					list := x.out.Outstanding()
					if len(list) != 1 {
						t.Fatalf("%d requests are under way", len(list))
					}
				}
				if name == "the lane is given up" {
					x.pd, _ = x.a.dev.AllocPD()
					x.in.Peer.Resume()
				} else if tt.named {
					x.regainLink(x.far)
				} else {
					x.regainLink()
				}
				settle(x.a, x.b)
				for range ops {
					if name == "the handler's process dies" {
						break // nobody is told
					}
					if r := x.result(x.service); r.Status != tt.want {
						t.Errorf("an operation: %v, want %v", r.Status, tt.want)
					}
				}
				if !bytes.Equal(after, x.far.Mem) {
					t.Error("bytes have changed after the end")
				}
				switch name {
				case "the handler's process dies":
					if status, ok := c.outcome(t); !ok || status != slots.StatusMaybeExecuted {
						t.Errorf("the call: %v, %v", status, ok)
					}
					x.service = x.b.addService()
				default:
					x.submit(x.service, op(u, slots.OpWrite, 0, 8, x.own))
					if r := x.result(x.service); r.Status != tt.want {
						t.Errorf("a late operation: %v, want %v", r.Status, tt.want)
					}
					x.finish(u)
					settle(x.a, x.b)
				}
			})
		}
	}
}

// An attempt to open the connection that ends after the link was lost, and after it is
// back, is nobody's.
func TestLateConnection(t *testing.T) {
	x := newRegionRig(t, fabrictest.NewFake())
	c, u := x.begin(whole(x.far, slots.AllRights))
	m := x.in.Peer.Mover
	m.Broken(nil)
	var late []func()
	connect := m.Connect
	m.Connect = func(attempt uint64) bool {
		late = append(late, func() { connect(attempt) })
		return true
	}
	x.submit(x.service, op(u, slots.OpWrite, 0, rigRegion, x.own))
	x.b.a.cycle()
	if len(late) != 1 || !m.opening {
		t.Fatalf("%d attempts", len(late))
	}
	late[0]() // it is made, and nobody hears of it yet
	x.in.Peer.Suspend(x.b.d)
	settle(x.a, x.b)
	x.loseLink()
	if m.End != nil {
		t.Fatal("there is a connection without a link")
	}
	x.regainLink(x.far)
	if len(late) != 2 {
		t.Fatalf("%d attempts", len(late))
	}
	late[1]()
	if r := x.result(x.service); r.Status != slots.OpOK {
		t.Error(r.Status)
	}
	x.finish(u)
	settle(x.a, x.b)
	if _, ok := c.outcome(t); !ok {
		t.Error("no answer")
	}
}

// A connection that breaks over and over while the link lives gives up on what is under
// way after a few times; a link that is lost as often does not.
func TestRedoLimit(t *testing.T) {
	for name, cut := range map[string]func(x *regionRig){
		"connection": func(x *regionRig) { x.in.Peer.Mover.Broken(nil) },
		"link": func(x *regionRig) {
			x.in.Peer.Mover.Broken(nil) // is noticed first
			x.loseLink()
			x.regainLink(x.far)
		},
	} {
		x := newRegionRig(t, fabrictest.NewFake())
		c, u := x.begin(whole(x.far, slots.AllRights))
		x.submit(x.service, op(u, slots.OpWrite, 0, 1000, x.own))
		for range 3 * redoLimit {
			for k := 0; k < 20 && (x.in.Peer.Mover.End == nil || x.in.Peer.Mover.End.next == 1); k++ {
				x.b.a.cycle()
			}
			if x.in.Peer.Mover.End == nil || !x.service.ops.Empty() {
				break
			}
			cut(x)
		}
		want := map[string]slots.OpStatus{"connection": slots.OpLost, "link": slots.OpOK}[name]
		if r := x.result(x.service); r.Status != want {
			t.Errorf("%s: %v, want %v", name, r.Status, want)
		}
		x.finish(u)
		settle(x.a, x.b)
		if _, ok := c.outcome(t); !ok {
			t.Error("no answer")
		}
	}
}
