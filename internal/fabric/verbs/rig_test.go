//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// patience bounds every wait; a run that passes does not wait for it.
const patience = 2 * time.Minute

const allAccess = fabric.AccessRemoteWrite | fabric.AccessRemoteRead | fabric.AccessRemoteAtomic

// end is one end of a rig's connection.
type end struct {
	pd  fabric.ProtectionDomain
	mr  fabric.MemoryRegion
	ep  *Endpoint
	tag uint64
}

func (e *end) close() error { return errors.Join(e.ep.Close(), e.mr.Close(), e.pd.Close()) }

// rig is two devices with a queue each, driven by the goroutine of the test or benchmark.
type rig struct {
	testing.TB
	dev    [2]*Device
	cq     [2]*cq
	poller *poller.Poller
	got    [2][]fabric.Completion
	buf    [64]fabric.Completion
	tags   uint64
}

func openDevice(t testing.TB, cfg Config) *Device {
	t.Helper()
	d, err := newProvider(t, cfg).Open(fabric.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d.(*Device)
}

// newRig opens the devices. close releases them; the test's end does, too.
func newRig(t testing.TB, cfg Config, depth int, event bool) *rig {
	t.Helper()
	r := &rig{TB: t}
	var err error
	if event {
		r.poller, err = poller.New()
		r.must(err)
		t.Cleanup(func() { r.must(r.poller.Close()) })
	}
	for i := range r.dev {
		r.dev[i] = openDevice(t, cfg)
		q, err := r.dev[i].CreateCQ(depth, r.poller)
		r.must(err)
		r.cq[i] = q.(*cq)
	}
	t.Cleanup(r.close)
	return r
}

func (r *rig) close() {
	r.Helper()
	for i := range r.dev {
		r.must(errors.Join(r.cq[i].Close(), r.dev[i].Close()))
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// newEnd makes an unconnected end on one of the devices, closed at the test's end.
func (r *rig) newEnd(side, send, recv int) *end {
	r.Helper()
	r.tags++
	e := &end{tag: r.tags}
	var err error
	e.pd, err = r.dev[side].AllocPD()
	r.must(err)
	e.mr, err = e.pd.Register(shm.AlignedBytes(64<<10), allAccess)
	r.must(err)
	ep, err := e.pd.CreateEndpoint(fabric.EndpointAttr{CQ: r.cq[side], Tag: e.tag, SendDepth: send, RecvDepth: recv})
	r.must(err)
	e.ep = ep.(*Endpoint)
	r.Cleanup(func() { r.must(e.close()) })
	return e
}

// join connects two ends and returns how long that took.
func (r *rig) join(a, b *end) time.Duration {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	passive := make(chan error, 1)
	start := time.Now()
	go func() { passive <- a.ep.Connect(ctx, b.ep.Address(), fabric.Passive) }()
	r.must(b.ep.Connect(ctx, a.ep.Address(), fabric.Active))
	r.must(<-passive)
	took := time.Since(start)
	r.must(a.ep.Activate())
	r.must(b.ep.Activate())
	return took
}

func (r *rig) pair(send, recv int) (*end, *end) {
	r.Helper()
	a, b := r.newEnd(0, send, recv), r.newEnd(1, send, recv)
	r.join(a, b)
	return a, b
}

// until polls both queues, asleep in between if there is a poller, until cond holds.
func (r *rig) until(what string, cond func() bool) {
	r.Helper()
	for deadline := time.Now().Add(patience); !cond(); {
		if time.Now().After(deadline) {
			r.Fatalf("no end in sight: %s; completions %+v", what, r.got)
		}
		if r.poll() > 0 {
			continue
		}
		if r.poller == nil {
			runtime.Gosched()
			continue
		}
		armed := true
		for _, q := range r.cq {
			ok, err := q.Arm()
			r.must(err)
			armed = armed && ok
		}
		wait := time.Duration(0)
		if armed {
			wait = time.Until(deadline)
		}
		_, err := r.poller.Wait(wait)
		r.must(err)
	}
}

func (r *rig) poll() int {
	r.Helper()
	total := 0
	for i, q := range r.cq {
		n, err := q.Poll(r.buf[:])
		r.must(err)
		r.got[i] = append(r.got[i], r.buf[:n]...)
		total += n
	}
	return total
}

func (r *rig) count(side int, op fabric.Op) int {
	n := 0
	for _, c := range r.got[side] {
		if c.Op == op {
			n++
		}
	}
	return n
}

// writeImm is a signaled write of n bytes from a to the same place of b.
func writeImm(a, b *end, n int, imm uint32) fabric.SendWR {
	to := b.mr.Remote()
	return fabric.SendWR{
		ID: uint64(imm), Op: fabric.OpWriteImm, Flags: fabric.FlagSignaled, Imm: imm,
		Local:      fabric.Local{Region: a.mr, Len: uint32(n)},
		RemoteAddr: to.Addr, RemoteKey: to.Key,
	}
}

// eachMode runs f for both ways to connect.
func eachMode(t *testing.T, f func(t *testing.T, cfg Config)) {
	for _, mode := range []string{ConnectOOB, ConnectCM} {
		t.Run(mode, func(t *testing.T) {
			needDevice(t)
			cfg := Default()
			cfg.Connect = mode
			f(t, cfg)
		})
	}
}
