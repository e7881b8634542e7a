//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// nowhere makes an RDMA device of an interface on whose network nobody answers, and an end of one of its devices with the
// address of a peer there.
func nowhere(t *testing.T) (*rig, *end, address) {
	t.Helper()
	inLab(t)
	ip(t, "link", "add", "nowhere0", "type", "veth", "peer", "name", "nowhere1")
	t.Cleanup(func() { ip(t, "link", "del", "nowhere0") })
	ip(t, "link", "set", "nowhere0", "up")
	ip(t, "link", "set", "nowhere1", "up")
	ip(t, "addr", "add", "10.66.0.1/24", "dev", "nowhere0")
	if out, err := exec.Command("rdma", "link", "add", "nowhere", "type", "rxe", "netdev", "nowhere0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("rdma", "link", "delete", "nowhere").Run() })
	cfg := Default()
	cfg.Device = "nowhere"
	// Its GID comes some time after it.
	for start := time.Now(); ; {
		d, err := newProvider(t, cfg).Open(fabric.Options{})
		if err == nil {
			gid := d.(*Device).gid.Addr
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if gid.Unmap().Is4() {
				break
			}
		}
		if time.Since(start) > patience {
			t.Fatalf("the device cannot be used: %v", err)
		}
	}
	r := newRig(t, cfg, 512, true)
	a, b := r.newEnd(0, 16, 16), r.newEnd(1, 16, 16)
	there := b.ep.addr
	there.gid = netip.AddrFrom16(netip.MustParseAddr("10.66.0.77").As16())
	return r, a, there
}

// connecting waits until an end is.
func connecting(t *testing.T, e *end) {
	t.Helper()
	for start := time.Now(); e.ep.phase() != phaseConnecting; runtime.Gosched() {
		if time.Since(start) > patience {
			t.Fatal("it does not connect")
		}
	}
}

// The kernel looks for a second for a peer that is nowhere. Neither Connect, when its time is over, nor the device's goroutine,
// nor Close waits for it.
func TestUnreachablePeerHoldsUpNobody(t *testing.T) {
	r, a, there := nowhere(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	connected := make(chan error, 1)
	go func() { connected <- a.ep.Connect(ctx, there.encode(), fabric.Passive) }()
	connecting(t, a)
	// How long it takes here.
	p := r.dev[1].path(there)
	began := time.Now()
	ah, err := r.dev[1].ctl.handleFor(&p)
	if err == nil {
		r.must(r.dev[1].ctl.release(ah))
	}
	whole := time.Since(began)
	if err == nil || whole < 100*time.Millisecond {
		t.Skipf("needs a kernel that looks for a peer for a while: %v, %v", err, whole)
	}

	cancel()
	if err := <-connected; err == nil {
		t.Error("connected")
	}
	r.must(a.ep.Close())

	// Who waits for the kernel does each time; a thread that stands still does not.
	hearing, returning, closing := time.Hour, time.Hour, time.Hour
	for round := 0; round < 5 && max(hearing, returning, closing) > whole/2; round++ {
		b := r.newEnd(0, 16, 16)
		there.token = newToken() // no other end's
		ctx, cancel := context.WithCancel(t.Context())
		go func() { connected <- b.ep.Connect(ctx, there.encode(), fabric.Passive) }()
		connecting(t, b)
		began = time.Now()
		r.dev[0].heard(message{kind: msgReady, to: b.ep.addr.token, from: there.token})
		hearing = min(hearing, time.Since(began))
		began = time.Now()
		cancel()
		if err := <-connected; err == nil {
			t.Error("connected")
		}
		returning = min(returning, time.Since(began))
		began = time.Now()
		r.must(b.ep.Close())
		closing = min(closing, time.Since(began))
	}
	if max(hearing, returning, closing) > whole/2 {
		t.Errorf("of %v, the device's goroutine is busy with one message for %v, Connect returns %v after its context has ended, Close takes %v", whole, hearing, returning, closing)
	}
}

// An end that is closed while it is being made ready leaves nothing behind, whichever comes first.
func TestCloseBesideMakingReady(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 512, false)
	for i := range 50 {
		a, b := r.newEnd(0, 16, 16), r.newEnd(1, 16, 16)
		connected := make(chan error, 1)
		go func() { connected <- a.ep.Connect(t.Context(), b.ep.Address(), fabric.Passive) }()
		connecting(t, a)
		for range i {
			runtime.Gosched() // it gets further and further
		}
		r.must(a.close())
		if err := <-connected; err == nil {
			t.Fatal("connected")
		}
		r.must(b.close())
	}
}

// What is made ready too late says so, and not that somebody has closed it: makeReady may hear of it before it looks at its context.
func TestMadeReadyTooLate(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 512, false)
	a, b := r.newEnd(0, 16, 16), r.newEnd(1, 16, 16)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.ep.make(late, b.ep.addr); !errors.Is(err, context.Canceled) || errors.Is(err, fabric.ErrClosed) {
		t.Errorf("made ready after its context has ended: %v", err)
	}
	r.must(errors.Join(a.close(), b.close()))
}
