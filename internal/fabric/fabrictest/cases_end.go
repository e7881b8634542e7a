package fabrictest

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

var endCases = []suiteCase{
	{"close flushes", caseCloseFlushes},
	{"peer closes", casePeerCloses},
	{"peer dies under load", casePeerDies},
	{"connect fails", caseConnectFails},
	{"use before connect", caseUnconnected},
	{"queue closes beside create", caseCreateBesideClose},
}

// Close completes everything outstanding, once, and reports no disconnect to the
// side that closed.
func caseCloseFlushes(w *world) {
	a, b := w.connect(shape{})
	a.recv(5)
	// Without receives on the other side some of these may still be under way.
	for i := range 10 {
		a.post(a.request(fabric.OpSend, uint64(i), 0, 4096, 0))
	}
	w.must(a.ep.Close())
	w.must(a.ep.Close())
	got := a.take(15)
	seen := make(map[uint64]int)
	for _, c := range got {
		seen[c.ID]++
		if c.Status != fabric.StatusFlushed && (c.ID >= 1000 || c.Status != fabric.StatusSuccess) {
			w.Fatalf("completion after Close: %+v", c)
		}
	}
	for id, n := range seen {
		if n != 1 {
			w.Fatalf("work request %d completed %d times", id, n)
		}
	}
	// A device may look for the end only where it looks for arrivals, and these
	// wait for receives.
	if _, err := b.ep.PostRecv([]fabric.RecvWR{{ID: 1, Local: b.local(0, 4096)}}); err == nil {
		// They may still arrive, or be too late.
		var wrs []fabric.RecvWR
		for i := range 9 {
			wrs = append(wrs, fabric.RecvWR{ID: uint64(2 + i), Local: b.local(0, 4096)})
		}
		_, _ = b.ep.PostRecv(wrs)
	}
	b.gone()
	b.got = nil
	w.silent(a, b)
	if _, err := a.ep.PostSend([]fabric.SendWR{a.writeImm(0, 1, 0, 1)}); !errors.Is(err, fabric.ErrClosed) {
		w.Fatalf("PostSend after Close: %v", err)
	}
	if _, err := a.ep.PostRecv([]fabric.RecvWR{{}}); !errors.Is(err, fabric.ErrClosed) {
		w.Fatalf("PostRecv after Close: %v", err)
	}
}

// The end of the peer flushes receives and is reported exactly once, last.
func casePeerCloses(w *world) {
	a, b := w.connect(shape{})
	b.recv(1)
	a.post(a.writeImm(0, 8, 0, 1))
	b.take(1)
	a.take(1)
	a.recv(3)
	w.must(b.ep.Close())
	a.gone()
	if len(a.got) != 4 || a.got[3].Op != fabric.OpDisconnect || a.got[3].Status == fabric.StatusSuccess {
		w.Fatalf("completions of the end: %+v", a.got)
	}
	for i, c := range a.got[:3] {
		if c.ID != uint64(1000+i) || c.Op != fabric.OpRecv || c.Status != fabric.StatusFlushed {
			w.Fatalf("flushed receive: %+v", c)
		}
	}
	a.got = nil
	w.silent(a, b)
}

// Whatever is under way when the peer goes, every signaled work request completes
// exactly once and in order.
func casePeerDies(w *world) {
	for after := range 10 {
		a, b := w.connect(shape{send: 32, recv: 32})
		b.recv(10)
		posted := uint64(0)
		w.until(func() bool {
			for {
				wr := a.writeImm(0, 5000, 0, uint32(posted))
				if n, _ := a.ep.PostSend([]fabric.SendWR{wr}); n == 0 {
					break
				}
				posted++
			}
			return b.count(fabric.OpRecvImm) >= after
		}, "load")
		w.must(b.ep.Close())
		a.gone()
		if n := a.count(fabric.OpWriteImm); n != int(posted) {
			w.Fatalf("%d of %d work requests completed", n, posted)
		}
		for i, c := range a.got[:posted] {
			if c.ID != uint64(i) || c.Status != fabric.StatusSuccess && c.Status != fabric.StatusFlushed {
				w.Fatalf("completion %d is %+v", i, c)
			}
		}
	}
}

// Connect gives up with its context, and refuses what is not an address.
func caseConnectFails(w *world) {
	for _, role := range []fabric.Role{fabric.Active, fabric.Passive} {
		a, b := w.newEnd(w.sides[0], shape{}), w.newEnd(w.sides[1], shape{})
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		err := a.ep.Connect(ctx, b.ep.Address(), role)
		cancel()
		var ce *fabric.ConnectError
		if !errors.As(err, &ce) || !errors.Is(err, context.DeadlineExceeded) {
			w.Fatalf("Connect to nobody: %v", err)
		}
		for _, bad := range [][]byte{nil, {0}, make([]byte, 20), make([]byte, 2000)} {
			c := w.newEnd(w.sides[0], shape{})
			if err := c.ep.Connect(context.Background(), bad, role); !errors.As(err, &ce) {
				w.Fatalf("Connect to a bad address: %v", err)
			}
		}
	}
	// Close ends a Connect.
	a, b := w.newEnd(w.sides[0], shape{}), w.newEnd(w.sides[1], shape{})
	failed := make(chan error, 1)
	go func() { failed <- a.ep.Connect(context.Background(), b.ep.Address(), fabric.Passive) }()
	w.must(a.ep.Close())
	if err := <-failed; err == nil {
		w.Fatal("Connect of a closed endpoint succeeded")
	}
}

// Without a connection there is nothing to activate; posted receives are flushed.
func caseUnconnected(w *world) {
	a := w.newEnd(w.sides[0], shape{})
	if err := a.ep.Activate(); err == nil {
		w.Fatal("Activate before Connect succeeded")
	}
	a.recv(2)
	w.must(a.ep.Close())
	for i, c := range a.take(2) {
		w.completed(c, fabric.Completion{Tag: a.tag, ID: uint64(1000 + i), Op: fabric.OpRecv, Status: fabric.StatusFlushed})
	}
	if err := a.ep.Activate(); !errors.Is(err, fabric.ErrClosed) {
		w.Fatalf("Activate after Close: %v", err)
	}
}

// A queue may be closed while an endpoint is being made for it: that is made, and Close of it does no harm, or it is refused.
func caseCreateBesideClose(w *world) {
	dev := w.sides[0].dev
	pd, err := dev.AllocPD()
	w.must(err)
	for i := range 30 {
		q, err := dev.CreateCQ(64, nil)
		w.must(err)
		made := make(chan error, 1)
		go func() {
			e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 16, RecvDepth: 16})
			if err == nil {
				err = e.Close()
			}
			made <- err
		}()
		for range i {
			runtime.Gosched() // it gets further and further
		}
		w.must(q.Close())
		if err := <-made; err != nil && !errors.Is(err, fabric.ErrClosed) {
			w.Fatal(err)
		}
	}
	w.must(pd.Close())
}
