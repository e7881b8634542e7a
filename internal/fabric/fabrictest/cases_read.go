package fabrictest

import (
	"encoding/binary"
	"errors"

	"github.com/rdmad/rdmad/internal/fabric"
)

var readCases = []suiteCase{
	{"read", caseRead},
	{"many reads", caseManyReads},
	{"reads both ways", caseReadsBothWays},
	{"atomics", caseAtomics},
	{"misaligned atomic", caseMisaligned},
}

// A read fetches exactly its bytes; the peer hears nothing.
func caseRead(w *world) {
	a, b := w.connect(shape{memory: 3 << 20})
	fill(b.mr.Bytes(), 7)
	for i, n := range []int{0, 1, 64, 100_000, 2 << 20} {
		clear(a.mr.Bytes())
		a.post(a.request(fabric.OpRead, uint64(i), 1000, n, 17))
		w.completed(a.take(1)[0], fabric.Completion{Tag: a.tag, ID: uint64(i), Op: fabric.OpRead})
		w.same(a.mr.Bytes()[1000:1000+n], b.mr.Bytes()[1017:1017+n], "read")
		w.zero(a.mr.Bytes()[:1000], "before")
		w.zero(a.mr.Bytes()[1000+n:], "after")
	}
	w.silent(a, b)
}

// More reads than a connection carries at a time complete in order, between
// writes that keep their order too.
func caseManyReads(w *world) {
	const n = 60
	a, b := w.connect(shape{send: 2 * n})
	fill(b.mr.Bytes()[:n*64], 8)
	var wrs []fabric.SendWR
	for i := range n {
		rd := a.request(fabric.OpRead, uint64(2*i), i*64, 64, 0)
		wr := a.request(fabric.OpWrite, uint64(2*i+1), 32<<10, 64, i*64)
		wrs = append(wrs, rd, wr)
	}
	a.post(wrs...)
	for i, c := range a.take(2 * n) {
		if c.ID != uint64(i) || c.Status != fabric.StatusSuccess {
			w.Fatalf("completion %d is %+v", i, c)
		}
	}
	w.same(a.mr.Bytes()[:n*64], b.mr.Bytes()[:n*64], "reads")
}

// Both sides may use up their reads at the same time.
func caseReadsBothWays(w *world) {
	const n, size = 50, 9000
	a, b := w.connect(shape{memory: 2 * n * size})
	for i, e := range []*end{a, b} {
		fill(e.mr.Bytes()[:n*size], uint64(20+i))
	}
	for i := range n {
		for _, e := range []*end{a, b} {
			wr := e.request(fabric.OpRead, uint64(i), n*size+i*size, size, -n*size)
			e.post(wr)
		}
	}
	for _, e := range []*end{a, b} {
		e.take(n)
		w.same(e.mr.Bytes()[n*size:], e.peer.mr.Bytes()[:n*size], "reads")
	}
}

func (w *world) needAtomics() {
	w.Helper()
	if !w.sides[0].dev.Caps().Atomics {
		w.Skip("the device has no atomics")
	}
}

// Atomics return the old value and change the word as they should.
func caseAtomics(w *world) {
	w.needAtomics()
	a, b := w.connect(shape{})
	word := b.mr.Bytes()[64:72]
	do := func(op fabric.Op, compare, swap, old, after uint64) {
		w.Helper()
		wr := a.request(op, 3, 0, 8, 64)
		wr.Compare, wr.Swap = compare, swap
		a.post(wr)
		w.completed(a.take(1)[0], fabric.Completion{Tag: a.tag, ID: 3, Op: op})
		if got := binary.NativeEndian.Uint64(a.mr.Bytes()); got != old {
			w.Fatalf("old value %d, want %d", got, old)
		}
		if got := binary.NativeEndian.Uint64(word); got != after {
			w.Fatalf("new value %d, want %d", got, after)
		}
	}
	do(fabric.OpFetchAdd, 0, 5, 0, 5)
	do(fabric.OpFetchAdd, 0, ^uint64(0), 5, 4)
	do(fabric.OpCompareSwap, 4, 1<<63, 4, 1<<63)
	do(fabric.OpCompareSwap, 4, 7, 1<<63, 1<<63)
	w.zero(b.mr.Bytes()[:64], "before the word")
	w.zero(b.mr.Bytes()[72:], "behind the word")
	// Many at once add up.
	const n = 40
	var wrs []fabric.SendWR
	for i := range n {
		wr := a.request(fabric.OpFetchAdd, uint64(i), 8+8*i, 8, -8*i)
		wr.Swap = 2
		wrs = append(wrs, wr)
	}
	a.post(wrs...)
	a.take(n)
	for i := range n {
		if got := binary.NativeEndian.Uint64(a.mr.Bytes()[8+8*i:]); got != uint64(2*i) {
			w.Fatalf("fetch-add %d returned %d", i, got)
		}
	}
	w.silent(a, b)
}

// A word across a boundary cannot be changed atomically, so not at all: it is
// refused at once, or by the peer.
func caseMisaligned(w *world) {
	w.needAtomics()
	a, b := w.connect(shape{})
	wr := a.request(fabric.OpFetchAdd, 6, 0, 8, 4)
	wr.Swap = 1
	if n, err := a.ep.PostSend([]fabric.SendWR{wr}); n == 0 && errors.Is(err, fabric.ErrInvalid) {
		w.silent(a, b)
	} else {
		w.must(err)
		w.refusedWith(a, 6, fabric.StatusRemoteInvalid)
		b.gone()
	}
	w.zero(b.mr.Bytes(), "misaligned")
}
