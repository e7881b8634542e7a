package fabrictest

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// patience bounds every wait of the suite. It is never waited for in a run that
// passes.
const patience = 2 * time.Minute

// suiteCase is one property every provider must have.
type suiteCase struct {
	name string
	run  func(w *world)
}

// RunConformance runs the suite against the provider that newProvider makes. Every
// case gets a new provider and opens two devices of it on the loopback interface;
// it runs once with polled queues and once asleep on a poller between events.
// What the device does not offer (Caps) is skipped with the reason.
func RunConformance(t *testing.T, newProvider func() fabric.Provider) {
	t.Helper()
	var cases []suiteCase
	for _, part := range [][]suiteCase{writeCases, twoSidedCases, readCases, refusalCases, endCases, flowCases, attributeCases} {
		cases = append(cases, part...)
	}
	for _, mode := range []string{"busy", "event"} {
		t.Run(mode, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) { c.run(newWorld(t, newProvider(), mode == "event")) })
			}
		})
	}
	t.Run("agents", func(t *testing.T) { runAgents(t, newProvider) })
}

// world is two devices of one provider, each with a completion queue, driven by
// the test's goroutine.
type world struct {
	*testing.T
	provider fabric.Provider
	poller   *poller.Poller // nil in busy mode
	sides    [2]*side
	ends     map[uint64]*end
	lastTag  uint64
	batch    int // completions per Poll
}

// side is a device and its queue.
type side struct {
	dev fabric.Device
	cq  fabric.CQ
}

// end is one end of a connection.
type end struct {
	w    *world
	side *side
	pd   fabric.ProtectionDomain
	ep   fabric.Endpoint
	mr   fabric.MemoryRegion
	tag  uint64
	peer *end
	// got are the completions so far.
	got []fabric.Completion
}

// shape describes a connection to make.
type shape struct {
	memory     int           // bytes per end; 0: 64 KiB
	send, recv int           // depths; 0: 64
	access     fabric.Access // 0: everything
}

const allAccess = fabric.AccessRemoteWrite | fabric.AccessRemoteRead | fabric.AccessRemoteAtomic

func newWorld(t *testing.T, p fabric.Provider, event bool) *world {
	t.Helper()
	w := &world{T: t, provider: p, ends: make(map[uint64]*end), batch: 32}
	if event {
		var err error
		w.poller, err = poller.New()
		w.must(err)
		t.Cleanup(func() { w.check(w.poller.Close()) })
	}
	for i := range w.sides {
		dev, err := p.Open(fabric.Options{Listen: "127.0.0.1:0"})
		w.must(err)
		t.Cleanup(func() { w.check(dev.Close()) })
		w.sides[i] = &side{dev: dev, cq: w.newCQ(dev, 1024)}
	}
	return w
}

// caps are those of both devices.
func (w *world) caps() fabric.Caps { return w.sides[0].dev.Caps() }

func (w *world) newCQ(dev fabric.Device, depth int) fabric.CQ {
	w.Helper()
	cq, err := dev.CreateCQ(depth, w.poller)
	w.must(err)
	w.Cleanup(func() { w.check(cq.Close()) })
	return cq
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}

// connect makes a connection; the first end is on the first device.
func (w *world) connect(s shape) (*end, *end) {
	w.Helper()
	a, b := w.newEnd(w.sides[0], s), w.newEnd(w.sides[1], s)
	w.join(a, b)
	return a, b
}

func (w *world) newEnd(on *side, s shape) *end {
	w.Helper()
	if s.memory == 0 {
		s.memory = 64 << 10
	}
	if s.send == 0 {
		s.send = 64
	}
	if s.recv == 0 {
		s.recv = 64
	}
	if s.access == 0 {
		s.access = allAccess
	}
	w.lastTag++
	e := &end{w: w, side: on, tag: w.lastTag, pd: w.newPD(on)}
	e.mr = w.register(e.pd, s.memory, s.access)
	var err error
	e.ep, err = e.pd.CreateEndpoint(fabric.EndpointAttr{CQ: on.cq, Tag: e.tag, SendDepth: s.send, RecvDepth: s.recv})
	w.must(err)
	w.Cleanup(func() { w.check(e.ep.Close()) })
	if n := len(e.ep.Address()); n == 0 || n > fabric.MaxAddress {
		w.Fatalf("address of %d bytes", n)
	}
	w.ends[e.tag] = e
	return e
}

func (w *world) newPD(on *side) fabric.ProtectionDomain {
	w.Helper()
	pd, err := on.dev.AllocPD()
	w.must(err)
	w.Cleanup(func() { w.check(pd.Close()) })
	return pd
}

func (w *world) register(pd fabric.ProtectionDomain, size int, access fabric.Access) fabric.MemoryRegion {
	w.Helper()
	mr, err := pd.Register(shm.AlignedBytes(size), access)
	w.must(err)
	w.Cleanup(func() { w.check(mr.Close()) })
	return mr
}

// join connects and activates two ends.
func (w *world) join(a, b *end) {
	w.Helper()
	a.peer, b.peer = b, a
	w.must(connectPair(a.ep, b.ep))
	w.must(a.ep.Activate())
	w.must(b.ep.Activate())
}

// connectPair runs both halves of a Connect; a is the passive one.
func connectPair(a, b fabric.Endpoint) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	passive := make(chan error, 1)
	to := b.Address()
	fabric.Expect(a, to)
	go func() { passive <- a.Connect(ctx, to, fabric.Passive) }()
	err := b.Connect(ctx, a.Address(), fabric.Active)
	if err != nil {
		cancel()
	}
	if perr := <-passive; err == nil {
		err = perr
	}
	return err
}

// collect polls both queues once and hands the completions to their ends.
func (w *world) collect() int {
	w.Helper()
	var c [32]fabric.Completion
	total := 0
	for _, s := range w.sides {
		n, err := s.cq.Poll(c[:w.batch])
		w.must(err)
		for _, d := range c[:n] {
			e := w.ends[d.Tag]
			if e == nil || e.side != s {
				w.Fatalf("completion with an unknown tag: %+v", d)
			}
			e.got = append(e.got, d)
		}
		total += n
	}
	if total > 0 && w.poller != nil {
		// An agent that has work looks at the poller, too.
		_, err := w.poller.Wait(0)
		w.must(err)
	}
	return total
}

// until drives both sides until cond holds. In event mode it sleeps whenever the
// queues let it, so that a lost wake-up shows as a failure.
func (w *world) until(cond func() bool, what string, args ...any) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			w.Fatalf("no end in sight: %s", fmt.Sprintf(what, args...))
		}
		if w.collect() > 0 {
			continue
		}
		if w.poller == nil {
			runtime.Gosched()
			continue
		}
		armed := true
		for _, s := range w.sides {
			ok, err := s.cq.Arm()
			w.must(err)
			armed = armed && ok
		}
		if !armed {
			_, err := w.poller.Wait(0)
			w.must(err)
			continue
		}
		_, err := w.poller.Wait(time.Until(deadline))
		w.must(err)
	}
}

// await drives both sides until e has at least n completions and returns them.
func (e *end) await(n int) []fabric.Completion {
	e.w.Helper()
	e.w.until(func() bool { return len(e.got) >= n }, "completion %d of endpoint %d, has %+v", n, e.tag, e.got)
	return e.got
}

// take is await, and forgets them.
func (e *end) take(n int) []fabric.Completion {
	e.w.Helper()
	got := e.await(n)
	e.got = got[n:]
	return got[:n]
}

// gone waits for e's OpDisconnect.
func (e *end) gone() {
	e.w.Helper()
	e.w.until(func() bool { return e.count(fabric.OpDisconnect) > 0 }, "disconnect of endpoint %d", e.tag)
}

func (e *end) count(op fabric.Op) int {
	n := 0
	for _, c := range e.got {
		if c.Op == op {
			n++
		}
	}
	return n
}

// silent fails if any of the ends has completions after a full round trip on
// another connection, which gives everything under way time to arrive.
func (w *world) silent(ends ...*end) {
	w.Helper()
	a, b := w.connect(shape{})
	for range 2 {
		b.recv(1)
		a.post(a.writeImm(0, 0, 0, 1))
		b.await(1)
		a.recv(1)
		b.post(b.writeImm(0, 0, 0, 2))
		a.await(2)
		a.got, b.got = nil, nil
	}
	for _, e := range ends {
		if len(e.got) > 0 {
			w.Fatalf("unexpected completions of endpoint %d: %+v", e.tag, e.got)
		}
	}
}

// post posts wrs, which must all be taken.
func (e *end) post(wrs ...fabric.SendWR) {
	e.w.Helper()
	if n, err := e.ep.PostSend(wrs); n != len(wrs) || err != nil {
		e.w.Fatalf("PostSend took %d of %d: %v", n, len(wrs), err)
	}
}

// recv posts n receives without memory, with IDs from 1000.
func (e *end) recv(n int) {
	e.w.Helper()
	wrs := make([]fabric.RecvWR, n)
	for i := range wrs {
		wrs[i].ID = uint64(1000 + i)
	}
	if n, err := e.ep.PostRecv(wrs); n != len(wrs) || err != nil {
		e.w.Fatalf("PostRecv took %d of %d: %v", n, len(wrs), err)
	}
}

// local is n bytes of e's memory.
func (e *end) local(off, n int) fabric.Local {
	return fabric.Local{Region: e.mr, Offset: uint64(off), Len: uint32(n)}
}

// request is a signaled work request between n bytes at off of e's memory and
// the same place of the peer's, shifted by shift.
func (e *end) request(op fabric.Op, id uint64, off, n, shift int) fabric.SendWR {
	r := e.peer.mr.Remote()
	return fabric.SendWR{
		ID: id, Op: op, Flags: fabric.FlagSignaled, Local: e.local(off, n),
		RemoteAddr: r.Addr + uint64(off+shift), RemoteKey: r.Key,
	}
}

// writeImm is a signaled write-imm, with the immediate as the ID.
func (e *end) writeImm(off, n, shift int, imm uint32) fabric.SendWR {
	wr := e.request(fabric.OpWriteImm, uint64(imm), off, n, shift)
	wr.Imm = imm
	return wr
}
