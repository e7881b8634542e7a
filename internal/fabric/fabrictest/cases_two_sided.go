package fabrictest

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
)

var twoSidedCases = []suiteCase{
	{"send and receive", caseSendRecv},
	{"send too long", caseSendTooLong},
	{"receiver not ready", caseReceiverNotReady},
	{"send waits for a receive", caseSendWaits},
}

// Sends arrive in order in the posted receives, which they may not fill.
func caseSendRecv(w *world) {
	a, b := w.connect(shape{})
	fill(a.mr.Bytes(), 4)
	sizes := []int{0, 1, 64, 4096, 5}
	for i, n := range sizes {
		wr := fabric.RecvWR{ID: uint64(i), Local: b.local(i*8192, max(n, 64))}
		if _, err := b.ep.PostRecv([]fabric.RecvWR{wr}); err != nil {
			w.Fatal(err)
		}
		a.post(a.request(fabric.OpSend, uint64(i), i*100, n, 0))
	}
	got := b.take(len(sizes))
	for i, n := range sizes {
		w.completed(got[i], fabric.Completion{Tag: b.tag, ID: uint64(i), Op: fabric.OpRecv, Len: uint32(n)})
		w.same(b.mr.Bytes()[i*8192:i*8192+n], a.mr.Bytes()[i*100:i*100+n], fmt.Sprintf("send %d", i))
		w.zero(b.mr.Bytes()[i*8192+n:(i+1)*8192], fmt.Sprintf("behind send %d", i))
	}
	for i, c := range a.take(len(sizes)) {
		w.completed(c, fabric.Completion{Tag: a.tag, ID: uint64(i), Op: fabric.OpSend})
	}
}

// A send that does not fit its receive ends the connection and changes nothing.
func caseSendTooLong(w *world) {
	a, b := w.connect(shape{})
	fill(a.mr.Bytes(), 5)
	if _, err := b.ep.PostRecv([]fabric.RecvWR{{ID: 1, Local: b.local(0, 10)}, {ID: 2}}); err != nil {
		w.Fatal(err)
	}
	a.post(a.request(fabric.OpSend, 7, 0, 11, 0))
	b.gone()
	want := fabric.Completion{Tag: b.tag, ID: 1, Op: fabric.OpRecv, Status: fabric.StatusLocalLength}
	if b.got[0].Status == fabric.StatusFatal {
		want.Status = fabric.StatusFatal // of a device that does not say what is wrong
	}
	w.completed(b.got[0], want)
	w.completed(b.got[1], fabric.Completion{Tag: b.tag, ID: 2, Op: fabric.OpRecv, Status: fabric.StatusFlushed})
	w.refusedWith(a, 7, fabric.StatusRemoteInvalid, fabric.StatusRemoteOperation)
	if w.caps().Protection == fabric.ProtectionFull {
		w.zero(b.mr.Bytes(), "short receive")
	}
}

// Immediates wait for receives, in order, and nothing is lost.
func caseReceiverNotReady(w *world) {
	a, b := w.connect(shape{})
	const total = 300
	posted, came := uint32(0), 0
	order := w.newTally()
	for came < total {
		for posted < total {
			wr := a.writeImm(int(posted%100)*64, 64, 0, posted)
			wr.Flags = 0
			if posted%8 == 7 {
				wr.Flags = fabric.FlagSignaled
			}
			if n, _ := a.ep.PostSend([]fabric.SendWR{wr}); n == 0 {
				break
			}
			posted++
		}
		w.collect()
		if len(b.got) > 0 {
			w.Fatalf("completions without a receive: %+v", b.got)
		}
		k := min(1+came%7, total-came, int(posted)-came)
		b.recv(k)
		for _, c := range b.take(k) {
			order.add(c, uint32(came))
			came++
		}
	}
}

// A send waits for its receive, and what follows waits with it.
func caseSendWaits(w *world) {
	a, b := w.connect(shape{})
	fill(a.mr.Bytes(), 6)
	a.post(a.request(fabric.OpSend, 1, 0, 100, 0), a.request(fabric.OpWrite, 2, 4096, 8, 0))
	w.silent(b)
	waiting := b.mr.Bytes()
	if !w.caps().OrderedWrites {
		waiting = waiting[8192:] // the write need not wait
	}
	w.zero(waiting, "memory of a waiting send")
	wrs := []fabric.RecvWR{{ID: 4, Local: b.local(8192, 100)}, {ID: 5}}
	if _, err := b.ep.PostRecv(wrs); err != nil {
		w.Fatal(err)
	}
	w.completed(b.take(1)[0], fabric.Completion{Tag: b.tag, ID: 4, Op: fabric.OpRecv, Len: 100})
	a.post(a.writeImm(0, 0, 0, 1))
	b.take(1)
	w.same(b.mr.Bytes()[8192:8292], a.mr.Bytes()[:100], "send")
	w.same(b.mr.Bytes()[4096:4104], a.mr.Bytes()[4096:4104], "write")
}
