package fabrictest

import (
	"errors"
	"slices"

	"github.com/rdmad/rdmad/internal/fabric"
)

var refusalCases = []suiteCase{
	{"refused write", func(w *world) { caseRefused(w, fabric.OpWrite, fabric.AccessRemoteWrite) }},
	{"refused write-imm", func(w *world) { caseRefused(w, fabric.OpWriteImm, fabric.AccessRemoteWrite) }},
	{"refused read", func(w *world) { caseRefused(w, fabric.OpRead, fabric.AccessRemoteRead) }},
	{"refused atomic", func(w *world) {
		w.needAtomics()
		caseRefused(w, fabric.OpFetchAdd, fabric.AccessRemoteAtomic)
	}},
	{"refused unsignaled", caseRefusedUnsignaled},
	{"earlier work survives a refusal", caseRefusedLater},
}

// refusedWith waits for the end of a's connection and checks that work request id
// failed with one of want, in its own completion or, if it had completed, in OpDisconnect.
func (w *world) refusedWith(a *end, id uint64, want ...fabric.Status) {
	w.Helper()
	a.gone()
	vague := w.caps().Protection == fabric.ProtectionVague
	for _, c := range a.got {
		if c.ID == id && c.Op < fabric.OpRecv && c.Status != fabric.StatusSuccess {
			if !slices.Contains(want, c.Status) && !vague {
				w.Fatalf("work request failed with %v, want %v", c.Status, want)
			}
			return
		}
	}
	if last := a.got[len(a.got)-1]; last.Op != fabric.OpDisconnect || !slices.Contains(want, last.Status) && !vague {
		w.Fatalf("no trace of %v in %+v", want, a.got)
	}
}

// needProtection skips a case that forbids something to a device that does not care.
func (w *world) needProtection() {
	w.Helper()
	if w.caps().Protection == fabric.ProtectionNone {
		w.Skip("the device does not protect memory from its peers")
	}
}

// caseRefused tries every way in which op can be forbidden: no byte changes on
// either side, the poster learns why, the connection ends on both.
func caseRefused(w *world, op fabric.Op, right fabric.Access) {
	w.needProtection()
	const size = 4096
	// The least that an address can be wrong by: atomics are for aligned words.
	step := uint64(1)
	if right == fabric.AccessRemoteAtomic {
		step = 8
	}
	other := w.register(w.newPD(w.sides[1]), size, allAccess)
	closed := func(a, b *end, wr *fabric.SendWR) { w.must(b.mr.Close()) }
	cases := map[string]struct {
		shape  shape
		change func(a, b *end, wr *fabric.SendWR)
	}{
		"too far":       {shape{}, func(_, b *end, wr *fabric.SendWR) { wr.RemoteAddr = b.mr.Remote().Addr + size - 8 + step }},
		"before":        {shape{}, func(_, b *end, wr *fabric.SendWR) { wr.RemoteAddr = b.mr.Remote().Addr - step }},
		"address wraps": {shape{}, func(_, _ *end, wr *fabric.SendWR) { wr.RemoteAddr = ^uint64(3) &^ (step - 1) }},
		"wrong key":     {shape{}, func(_, _ *end, wr *fabric.SendWR) { wr.RemoteKey ^= 1 }},
		"other domain": {shape{}, func(_, _ *end, wr *fabric.SendWR) {
			wr.RemoteAddr, wr.RemoteKey = other.Remote().Addr, other.Remote().Key
		}},
		"right missing": {shape{access: allAccess &^ right}, nil},
		"closed region": {shape{}, closed},
	}
	if w.caps().Protection != fabric.ProtectionFull && right != fabric.AccessRemoteWrite {
		delete(cases, "right missing")
	}
	for name, c := range cases {
		c.shape.memory = size
		a, b := w.connect(c.shape)
		fill(b.mr.Bytes(), 1)
		want := append([]byte(nil), b.mr.Bytes()...)
		b.recv(1)
		wr := a.request(op, 42, 0, 8, 0)
		wr.Swap = 1
		if c.change != nil {
			c.change(a, b, &wr)
		}
		a.post(wr)
		w.refusedWith(a, 42, fabric.StatusRemoteAccess)
		b.gone()
		w.same(b.mr.Bytes(), want, name)
		w.zero(a.mr.Bytes(), name)
		w.zero(other.Bytes(), name)
		if n := b.count(fabric.OpRecvImm); n != 0 {
			w.Fatalf("%s: the peer got an immediate", name)
		}
		for _, e := range []*end{a, b} {
			if n := e.count(fabric.OpDisconnect); n != 1 {
				w.Fatalf("%s: %d disconnects", name, n)
			}
			if n, err := e.ep.PostSend([]fabric.SendWR{wr}); n != 0 || !errors.Is(err, fabric.ErrClosed) {
				w.Fatalf("%s: PostSend after the end took %d, %v", name, n, err)
			}
			e.got = nil
		}
	}
}

// Errors are reported also for work requests nobody wanted to hear of.
func caseRefusedUnsignaled(w *world) {
	w.needProtection()
	a, b := w.connect(shape{})
	wr := a.request(fabric.OpWrite, 42, 0, 8, 0)
	wr.Flags, wr.RemoteKey = 0, 1
	a.post(wr)
	w.refusedWith(a, 42, fabric.StatusRemoteAccess)
	b.gone()
	w.zero(b.mr.Bytes(), "refused")
}

// What was posted before the refused request is carried out, what was posted
// after it is not.
func caseRefusedLater(w *world) {
	w.needProtection()
	a, b := w.connect(shape{})
	fill(a.mr.Bytes(), 1)
	fill(b.mr.Bytes()[4096:], 2)
	b.recv(1)
	bad := a.request(fabric.OpWrite, 3, 0, 8, 0)
	bad.RemoteKey ^= 1
	a.post(a.request(fabric.OpRead, 1, 4096, 100, 0), a.writeImm(0, 100, 0, 2), bad, a.request(fabric.OpWrite, 4, 200, 100, 0))
	w.refusedWith(a, 3, fabric.StatusRemoteAccess)
	b.gone()
	if !w.caps().OrderedWrites {
		return // they may have been later, and it earlier
	}
	w.same(a.mr.Bytes()[4096:4196], b.mr.Bytes()[4096:4196], "earlier read")
	w.same(b.mr.Bytes()[:100], a.mr.Bytes()[:100], "earlier write")
	w.zero(b.mr.Bytes()[200:300], "later write")
	if b.count(fabric.OpRecvImm) != 1 {
		w.Fatalf("the earlier immediate is missing: %+v", b.got)
	}
	for _, c := range a.got {
		if c.ID == 1 && c.Status != fabric.StatusSuccess || c.ID == 2 && c.Status != fabric.StatusSuccess {
			w.Fatalf("earlier work request: %+v", c)
		}
	}
}
