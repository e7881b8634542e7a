package fabrictest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"

	"github.com/rdmad/rdmad/internal/fabric"
)

var writeCases = []suiteCase{
	{"write", caseWrite},
	{"write-imm", caseWriteImm},
	{"empty write-imm", caseEmptyWriteImm},
	{"ordering", caseOrdering},
	{"batches", caseBatches},
	{"large", caseLarge},
	{"inline", caseInline},
	{"posted before activate", casePostedEarly},
	{"invalid requests", caseInvalid},
}

// fill writes bytes that depend on seed.
func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, r.Uint64())
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func (w *world) same(got, want []byte, what string) {
	w.Helper()
	if !bytes.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		w.Fatalf("%s: %d and %d bytes differ from byte %d", what, len(got), len(want), i)
	}
}

func (w *world) zero(b []byte, what string) {
	w.Helper()
	for i, v := range b {
		if v != 0 {
			w.Fatalf("%s: byte %d changed", what, i)
		}
	}
}

func (w *world) completed(got fabric.Completion, want fabric.Completion) {
	w.Helper()
	got.Vendor = 0
	if want.Op == fabric.OpRecvImm && w.caps().UnsizedImm {
		want.Len = 0
	}
	if got != want {
		w.Fatalf("completion %+v, want %+v", got, want)
	}
}

// A write changes exactly its bytes and tells the peer nothing.
func caseWrite(w *world) {
	a, b := w.connect(shape{})
	fill(a.mr.Bytes(), 1)
	a.post(a.request(fabric.OpWrite, 5, 100, 1000, 50))
	w.completed(a.take(1)[0], fabric.Completion{Tag: a.tag, ID: 5, Op: fabric.OpWrite})
	// Landing is only known from something that follows.
	b.recv(1)
	a.post(a.writeImm(0, 0, 0, 1))
	b.take(1)
	mem := b.mr.Bytes()
	w.same(mem[150:1150], a.mr.Bytes()[100:1100], "written")
	w.zero(mem[:150], "before")
	w.zero(mem[1150:], "after")
	a.take(1)
	w.silent(a, b)
}

// An immediate consumes one receive, comes after its payload and says how long
// it was.
func caseWriteImm(w *world) {
	a, b := w.connect(shape{})
	fill(a.mr.Bytes(), 2)
	b.recv(2)
	a.post(a.writeImm(8, 77, 0, 0), a.writeImm(200, 1, 0, 0xfeedface))
	got := w.inOrder(b.take(2))
	w.completed(got[0], fabric.Completion{Tag: b.tag, ID: 1000, Op: fabric.OpRecvImm, Len: 77})
	w.completed(got[1], fabric.Completion{Tag: b.tag, ID: 1001, Op: fabric.OpRecvImm, Imm: 0xfeedface, Len: 1})
	w.same(b.mr.Bytes()[8:85], a.mr.Bytes()[8:85], "written")
	a.take(2)
}

// Without payload neither region nor key matter.
func caseEmptyWriteImm(w *world) {
	a, b := w.connect(shape{})
	b.recv(1)
	a.post(fabric.SendWR{ID: 1, Op: fabric.OpWriteImm, Imm: 9})
	w.completed(b.take(1)[0], fabric.Completion{Tag: b.tag, ID: 1000, Op: fabric.OpRecvImm, Imm: 9})
	w.silent(a, b)
}

// Writes land in posting order, and an immediate after all of them.
func caseOrdering(w *world) {
	if !w.caps().OrderedWrites {
		w.Skip("the device does not order writes")
	}
	const rounds, writes, size = 50, 20, 64
	a, b := w.connect(shape{})
	for round := range rounds {
		var wrs []fabric.SendWR
		for i := range writes {
			src := a.mr.Bytes()[i*size : (i+1)*size]
			fill(src, uint64(round*writes+i))
			// All to the same place: the last one must win.
			wr := a.request(fabric.OpWrite, 1, i*size, size, -i*size)
			wr.Flags = 0
			wrs = append(wrs, wr)
		}
		wrs = append(wrs, a.writeImm(0, 0, 0, uint32(round)))
		b.recv(1)
		a.post(wrs...)
		if got := b.take(1)[0]; got.Imm != uint32(round) {
			w.Fatalf("immediate %d in round %d", got.Imm, round)
		}
		last := (writes - 1) * size
		w.same(b.mr.Bytes()[:size], a.mr.Bytes()[last:last+size], "last write")
		a.take(1)
	}
}

// A batch of any size completes in order, work request by work request.
func caseBatches(w *world) {
	a, b := w.connect(shape{send: 64, recv: 64})
	fill(a.mr.Bytes(), 3)
	id := uint64(0)
	for _, size := range []int{1, 2, 3, 31, 64} {
		var wrs []fabric.SendWR
		for range size {
			wr := a.writeImm(int(id)*16, 16, 0, uint32(id))
			wrs = append(wrs, wr)
			id++
		}
		b.recv(size)
		a.post(wrs...)
		sent, came := a.take(size), w.inOrder(b.take(size))
		for i := range size {
			w.completed(sent[i], fabric.Completion{Tag: a.tag, ID: wrs[i].ID, Op: fabric.OpWriteImm})
			w.completed(came[i], fabric.Completion{Tag: b.tag, ID: uint64(1000 + i), Op: fabric.OpRecvImm, Imm: wrs[i].Imm, Len: 16})
		}
	}
	w.same(b.mr.Bytes()[:id*16], a.mr.Bytes()[:id*16], "batches")
}

// Several MiB arrive byte by byte, in both directions at once.
func caseLarge(w *world) {
	const size = 5<<20 + 13
	a, b := w.connect(shape{memory: 2 * size})
	for i, e := range []*end{a, b} {
		fill(e.mr.Bytes()[:size], uint64(10+i))
		e.recv(2)
	}
	for _, e := range []*end{a, b} {
		e.post(e.writeImm(0, size, size, 1), e.writeImm(0, 3, size, 2))
	}
	for _, e := range []*end{a, b} {
		e.take(4)
		w.same(e.mr.Bytes()[size:], e.peer.mr.Bytes()[:size], "large write")
	}
}

// Inline data may be overwritten as soon as PostSend has returned.
func caseInline(w *world) {
	limit := w.sides[0].dev.Caps().MaxInline
	if limit == 0 {
		w.Skip("the device has no inline data")
	}
	a, b := w.connect(shape{})
	src := a.mr.Bytes()[:limit]
	want := make([]byte, limit)
	for round := range 20 {
		fill(src, uint64(round))
		copy(want, src)
		wr := a.writeImm(0, limit, 0, uint32(round))
		wr.Flags |= fabric.FlagInline
		a.post(wr)
		clear(src)
		b.recv(1)
		b.take(1)
		a.take(1)
		w.same(b.mr.Bytes()[:limit], want, "inline")
	}
}

// Receives posted before Activate count.
func casePostedEarly(w *world) {
	a, b := w.newEnd(w.sides[0], shape{}), w.newEnd(w.sides[1], shape{})
	b.recv(1)
	w.join(a, b)
	a.post(a.writeImm(0, 8, 0, 3))
	w.completed(b.take(1)[0], fabric.Completion{Tag: b.tag, ID: 1000, Op: fabric.OpRecvImm, Imm: 3, Len: 8})
}

// What can never succeed is refused at once and harms nothing.
func caseInvalid(w *world) {
	a, b := w.connect(shape{})
	size := len(a.mr.Bytes())
	foreign := w.register(w.newPD(w.sides[1]), 64, allAccess)
	other := w.register(w.newPD(w.sides[0]), 64, allAccess)
	closed := w.register(a.pd, 64, allAccess)
	w.must(closed.Close())
	for name, change := range map[string]func(*fabric.SendWR){
		"no op":          func(wr *fabric.SendWR) { wr.Op = 0 },
		"receive op":     func(wr *fabric.SendWR) { wr.Op = fabric.OpRecv },
		"unknown op":     func(wr *fabric.SendWR) { wr.Op = 200 },
		"past the end":   func(wr *fabric.SendWR) { wr.Local.Offset = uint64(size) - 7 },
		"offset wraps":   func(wr *fabric.SendWR) { wr.Local.Offset = ^uint64(0) - 3 },
		"longer than it": func(wr *fabric.SendWR) { wr.Local.Len = uint32(size) + 1 },
		"no region":      func(wr *fabric.SendWR) { wr.Local.Region = nil },
		"foreign region": func(wr *fabric.SendWR) { wr.Local.Region = foreign },
		"other domain":   func(wr *fabric.SendWR) { wr.Local.Region = other },
		"closed region":  func(wr *fabric.SendWR) { wr.Local.Region = closed },
		"inline too long": func(wr *fabric.SendWR) {
			wr.Flags |= fabric.FlagInline
			wr.Local.Len = uint32(a.side.dev.Caps().MaxInline) + 1
		},
	} {
		wr := a.request(fabric.OpWrite, 1, 0, 8, 0)
		change(&wr)
		if n, err := a.ep.PostSend([]fabric.SendWR{wr}); n != 0 || !errors.Is(err, fabric.ErrInvalid) {
			w.Errorf("%s: PostSend took %d, %v", name, n, err)
		}
	}
	bad := fabric.RecvWR{Local: fabric.Local{Region: b.mr, Offset: uint64(size), Len: 1}}
	if n, err := b.ep.PostRecv([]fabric.RecvWR{{ID: 1000}, bad}); n != 1 || !errors.Is(err, fabric.ErrInvalid) {
		w.Errorf("PostRecv took %d, %v", n, err)
	}
	// The good ones before a bad one are taken.
	if n, err := a.ep.PostSend([]fabric.SendWR{a.writeImm(0, 8, 0, 4), {}}); n != 1 || !errors.Is(err, fabric.ErrInvalid) {
		w.Errorf("PostSend of a good and a bad one took %d, %v", n, err)
	}
	b.take(1)
	a.take(1)
	w.silent(a, b)
}
