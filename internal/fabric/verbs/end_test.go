//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/leaktest"
)

// kernelObjects returns the device's objects in the kernel by kind, nil if it does
// not say.
func kernelObjects(t *testing.T, device string) map[string]any {
	t.Helper()
	out, err := exec.Command("rdma", "-j", "resource", "show", device).Output()
	if err != nil {
		t.Logf("rdma resource show: %v", err)
		return nil
	}
	var list []map[string]any
	if err := json.Unmarshal(out, &list); err != nil || len(list) != 1 {
		t.Logf("rdma resource show: %s: %v", out, err)
		return nil
	}
	return list[0]
}

// After 200 connections nothing is left: no descriptor, no object here or in the
// kernel.
func TestNoLeaks(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		// librdmacm opens every device of the machine once for the whole process.
		if err := openDevice(t, cfg).Close(); err != nil {
			t.Fatal(err)
		}
		kernel, fds, objects := kernelObjects(t, needDevice(t).Name), leaktest.Descriptors(t), live.Load()
		t.Run("cycles", func(t *testing.T) {
			r := newRig(t, cfg, 1024, true)
			inside := live.Load()
			reserved := r.cq[0].reserved
			var times []time.Duration
			for i := range 200 {
				t.Run("", func(t *testing.T) {
					r := *r
					r.TB = t
					a, b := r.newEnd(0, 8, 8), r.newEnd(1, 8, 8)
					times = append(times, r.join(a, b))
					if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 4)); n != 4 || err != nil {
						t.Fatal(n, err)
					}
					if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 1)}); n != 1 || err != nil {
						t.Fatal(n, err)
					}
					ends := []*end{a, b}
					if i%2 == 0 {
						r.until("arrival", func() bool { return r.count(1, fabric.OpRecvImm) == 1 })
						r.must(ends[i/2%2].ep.Close())
						r.until("disconnect", func() bool { return r.count(0, fabric.OpDisconnect)+r.count(1, fabric.OpDisconnect) == 1 })
					}
				})
				r.got = [2][]fabric.Completion{}
			}
			slices.Sort(times)
			t.Logf("connecting took %v at least, %v in the middle, %v at most", times[0], times[len(times)/2], times[len(times)-1])
			r.until("farewells", func() bool { return live.Load() == inside })
			r.poll()
			r.poll()
			if n := r.cq[0].reserved; n != reserved {
				t.Errorf("room for %d completions is still reserved", n-reserved)
			}
		})
		if n := live.Load(); n != objects {
			t.Errorf("%d objects are left", n-objects)
		}
		if n := leaktest.Descriptors(t); n != fds {
			t.Errorf("%d descriptors are left", n-fds)
		}
		if kernel == nil {
			return
		}
		for kind, before := range kernel {
			if after := kernelObjects(t, kernel["ifname"].(string))[kind]; after != before {
				t.Errorf("the kernel has %v of %s, and had %v before", after, kind, before)
			}
		}
	})
}

// A refused request says on its side what was wrong, and ends both.
func TestExplain(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		r := newRig(t, cfg, 256, true)
		a, b := r.pair(8, 8)
		wr := writeImm(a, b, 8, 5)
		wr.Op = fabric.OpWrite
		wr.RemoteKey ^= 0x55
		if n, err := a.ep.PostSend([]fabric.SendWR{wr}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.until("ends", func() bool { return r.count(0, fabric.OpDisconnect) == 1 && r.count(1, fabric.OpDisconnect) == 1 })
		c := r.got[0][0]
		if c.ID != 5 || c.Status != fabric.StatusRemoteAccess {
			t.Errorf("%+v", c)
		}
		err := fabric.Endpoint(a.ep).(fabric.Explainer).Explain(c)
		var ce *CompletionError
		var se *fabric.StatusError
		if !errors.As(err, &ce) || !errors.As(err, &se) || ce.QPN != a.ep.qpn || ce.Device != r.dev[0].name {
			t.Errorf("%v", err)
		}
		t.Log(err)
		if err := a.ep.Explain(fabric.Completion{}); err != nil {
			t.Errorf("success: %v", err)
		}
		for side, got := range r.got {
			if last := got[len(got)-1]; last.Op != fabric.OpDisconnect || last.Status == fabric.StatusSuccess {
				t.Errorf("side %d: %+v", side, got)
			}
		}
	})
}

// Work that was flushed because the peer has closed the connection is told from that of a failure of this side, although the device
// says the same of both.
func TestExplainThePeersEnd(t *testing.T) {
	flushed := fabric.Completion{Op: fabric.OpRecv, Status: fabric.StatusFlushed, Vendor: 0xf9}
	for _, lost := range []bool{false, true} {
		e := &Endpoint{dev: &Device{found: new(found)}, isLost: lost}
		if err := e.Explain(flushed); errors.Is(err, fabric.ErrPeerClosed) != lost {
			t.Errorf("the peer has closed it: %v; it says %v", lost, err)
		}
		if err := e.Explain(fabric.Completion{Status: fabric.StatusRetryExceeded}); errors.Is(err, fabric.ErrPeerClosed) {
			t.Error(err)
		}
	}
}

// What comes between Connect and Activate waits for Activate, the end included.
func TestHeldUntilActivate(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		r := newRig(t, cfg, 256, true)
		a, b := r.newEnd(0, 8, 8), r.newEnd(1, 8, 8)
		if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 3)); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		passive := make(chan error, 1)
		go func() { passive <- a.ep.Connect(context.Background(), b.ep.Address(), fabric.Passive) }()
		r.must(b.ep.Connect(context.Background(), a.ep.Address(), fabric.Active))
		r.must(<-passive)
		r.must(a.ep.Activate())
		if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 1)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.until("completion", func() bool { return r.count(0, fabric.OpWriteImm) == 1 })
		r.must(a.ep.Close())
		<-b.ep.lost
		for range 100 {
			r.poll()
		}
		if len(r.got[1]) != 0 {
			t.Fatalf("before Activate: %+v", r.got[1])
		}
		r.must(b.ep.Activate())
		if ok, err := r.cq[1].Arm(); ok || err != nil {
			t.Errorf("Arm with completions held: %v, %v", ok, err)
		}
		r.until("end", func() bool { return r.count(1, fabric.OpDisconnect) == 1 })
		got := r.got[1]
		if len(got) != 4 || got[0].Op != fabric.OpRecvImm || got[0].Imm != 1 || got[1].Status != fabric.StatusFlushed || got[3].Op != fabric.OpDisconnect {
			t.Errorf("%+v", got)
		}
		if err := b.ep.Explain(got[1]); !errors.Is(err, fabric.ErrPeerClosed) {
			t.Error(err)
		}
	})
}

// vanish ends an endpoint as the death of its machine would: nobody is told.
func vanish(e *Endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.isLost = true
}

// A peer that is gone without a word is noticed by the first work request that needs
// it, which says what the retries were.
func TestPeerVanishes(t *testing.T) {
	needDevice(t)
	cfg := Default()
	cfg.Timeout, cfg.RetryCount = 12, 3
	r := newRig(t, cfg, 256, true)
	a, b := r.pair(8, 8)
	vanish(b.ep)
	r.must(b.ep.Close())
	if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 1), writeImm(a, b, 8, 2)}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	r.until("disconnect", func() bool { return r.count(0, fabric.OpDisconnect) == 1 })
	got := r.got[0]
	if len(got) != 3 || got[0].Status != fabric.StatusRetryExceeded || got[1].Status != fabric.StatusFlushed || got[2].Status != fabric.StatusRetryExceeded {
		t.Fatalf("%+v", got)
	}
	err := a.ep.Explain(got[0])
	for _, s := range []string{"timeout 12 (16.777216ms)", "retry_count 3", "rdmad doctor"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not say %q", err, s)
		}
	}
}

// A receiver that is never ready is given up if the configuration says so.
func TestReceiverNeverReady(t *testing.T) {
	needDevice(t)
	cfg := Default()
	cfg.RNRRetry = 2
	r := newRig(t, cfg, 256, true)
	a, b := r.pair(8, 8)
	if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 1)}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r.until("ends", func() bool { return r.count(0, fabric.OpDisconnect) == 1 && r.count(1, fabric.OpDisconnect) == 1 })
	if c := r.got[0][0]; c.Status != fabric.StatusRNRExceeded || c.ID != 1 {
		t.Errorf("%+v", c)
	}
}

// Messages of strangers and of the past change nothing.
func TestStrangeMessages(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 256, true)
	a, b := r.pair(8, 8)
	for _, m := range []message{
		{kind: msgGone, to: newToken(), from: b.ep.addr.token},
		{kind: msgGone, to: a.ep.addr.token, from: newToken()},
		{kind: msgReady, to: a.ep.addr.token, from: newToken()},
		{kind: msgReady, to: a.ep.addr.token, from: b.ep.addr.token},
		{kind: msgReadyBoth, to: a.ep.addr.token, from: b.ep.addr.token},
	} {
		r.must(r.dev[1].ctl.send(b.ep.to.ah, b.ep.to.qpn, b.ep.to.secret, m))
	}
	if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	time.Sleep(50 * time.Millisecond)
	if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 1)}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	r.until("arrival", func() bool { return r.count(1, fabric.OpRecvImm) == 1 })
	if n := r.count(0, fabric.OpDisconnect) + r.count(1, fabric.OpDisconnect); n != 0 {
		t.Errorf("%d disconnects", n)
	}
}

// The end of a broken queue, device or queue pair reaches a sleeping owner, who gets
// every work request back.
func TestBroken(t *testing.T) {
	for name, c := range map[string]struct {
		vendor uint32
		break_ func(*Device, *Endpoint)
	}{
		"queue":      {VendorCQError, func(d *Device, e *Endpoint) { d.broken(func(q *cq) bool { return q == e.cq }) }},
		"device":     {VendorDeviceFatal, func(d *Device, _ *Endpoint) { d.broken(nil) }},
		"queue pair": {VendorQPFatal, func(d *Device, e *Endpoint) { d.pairFailed(e.qpn) }},
	} {
		t.Run(name, func(t *testing.T) {
			needDevice(t)
			r := newRig(t, Default(), 256, true)
			a, _ := r.pair(8, 8)
			if n, err := a.ep.PostRecv(make([]fabric.RecvWR, 3)); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			go func() {
				time.Sleep(20 * time.Millisecond)
				c.break_(r.dev[0], a.ep)
			}()
			r.until("end", func() bool { return r.count(0, fabric.OpDisconnect) == 1 })
			got := r.got[0]
			if len(got) != 4 || got[3].Status != fabric.StatusFatal || got[3].Vendor != c.vendor || r.count(0, fabric.OpRecv) != 3 {
				t.Errorf("%+v", got)
			}
			if _, err := a.ep.PostRecv(make([]fabric.RecvWR, 1)); !errors.Is(err, fabric.ErrClosed) {
				t.Errorf("PostRecv: %v", err)
			}
		})
	}
}

// Ends that do not fit say so, on both sides.
func TestConnectRefuses(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		r := newRig(t, cfg, 256, false)
		for name, change := range map[string]func(*address){
			"RoCE v1": func(a *address) {
				a.gidType = map[string]string{gidRoCEv2: gidRoCEv1, gidRoCEv1: gidRoCEv2}[a.gidType]
			},
			"InfiniBand": func(a *address) { a.linkLayer, a.gidType = linkInfiniBand, gidIB },
		} {
			if r.dev[0].port.LinkLayer != linkEthernet {
				continue
			}
			e := r.newEnd(0, 1, 1)
			there := r.newEnd(1, 1, 1).ep.addr
			change(&there)
			err := e.ep.Connect(context.Background(), there.encode(), fabric.Active)
			var ce *fabric.ConnectError
			if !errors.As(err, &ce) || !strings.Contains(err.Error(), "this side") || !strings.Contains(err.Error(), "peer") {
				t.Errorf("%s: %v", name, err)
			}
		}
		// A token that nobody has.
		e := r.newEnd(0, 1, 1)
		there := r.newEnd(1, 1, 1).ep.addr
		there.token = newToken()
		limit := patience
		if cfg.Connect == ConnectOOB { // nobody says no
			limit = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err := e.ep.Connect(ctx, there.encode(), fabric.Active)
		if cfg.Connect == ConnectCM && !errors.Is(err, errRejected) {
			t.Errorf("unknown token: %v", err)
		}
		if cfg.Connect == ConnectOOB && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unknown token: %v", err)
		}
	})
}

// A passive side that is late holds up the active one and nothing else; a peer that
// closes meanwhile is noticed.
func TestLatePassive(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		r := newRig(t, cfg, 256, false)
		a, b := r.newEnd(0, 8, 8), r.newEnd(1, 8, 8)
		const late = 700 * time.Millisecond
		active := make(chan error, 1)
		start := time.Now()
		go func() { active <- a.ep.Connect(context.Background(), b.ep.Address(), fabric.Active) }()
		time.Sleep(late)
		r.must(b.ep.Connect(context.Background(), a.ep.Address(), fabric.Passive))
		r.must(<-active)
		t.Logf("connected %v after the passive side was ready", time.Since(start)-late)
		r.must(a.ep.Activate())
		r.must(b.ep.Activate())
		if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 3)}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.until("arrival", func() bool { return r.count(1, fabric.OpRecvImm) == 1 })

		c, d := r.newEnd(0, 8, 8), r.newEnd(1, 8, 8)
		go func() { active <- c.ep.Connect(context.Background(), d.ep.Address(), fabric.Active) }()
		time.Sleep(50 * time.Millisecond)
		r.must(d.ep.Close())
		if cfg.Connect == ConnectOOB {
			// The peer was never connected: it has nobody to tell.
			r.must(c.ep.Close())
		}
		if err := <-active; err == nil {
			t.Error("connected with a closed endpoint")
		}
	})
}

// Closing the queue first ends its endpoints, too.
func TestQueueClosedFirst(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		r := newRig(t, cfg, 256, true)
		a, b := r.pair(8, 8)
		r.must(r.cq[0].Close())
		for deadline := time.Now().Add(patience); ; {
			n, err := r.cq[1].Poll(r.buf[:])
			r.must(err)
			if slices.ContainsFunc(r.buf[:n], func(c fabric.Completion) bool { return c.Op == fabric.OpDisconnect && c.Tag == b.tag }) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("no disconnect")
			}
		}
		if _, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, 1)}); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("PostSend: %v", err)
		}
		if err := a.ep.Activate(); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("Activate: %v", err)
		}
		if _, err := r.cq[0].Poll(r.buf[:]); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("Poll: %v", err)
		}
	})
}

// A queue is not slept on while an end of it is still to be reported, however few completions each Poll has room for.
func TestArmBeforeTheEndIsReported(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		r := newRig(t, cfg, 256, true)
		a, b := r.pair(8, 4)
		if n, err := a.ep.PostRecv(make([]fabric.RecvWR, 4)); n != 4 || err != nil {
			t.Fatal(n, err)
		}
		r.must(b.ep.Close())
		var got []fabric.Completion
		for deadline := time.Now().Add(patience); len(got) < 5; {
			if time.Now().After(deadline) {
				t.Fatalf("asleep with %+v", got)
			}
			var one [1]fabric.Completion
			n, err := r.cq[0].Poll(one[:])
			r.must(err)
			got = append(got, one[:n]...)
			asleep, err := r.cq[0].Arm()
			r.must(err)
			if asleep {
				_, err := r.poller.Wait(time.Until(deadline))
				r.must(err)
			}
		}
		if last := got[4]; last.Op != fabric.OpDisconnect {
			t.Errorf("%+v", got)
		}
	})
}

// A queue that fails ends what uses it, and takes nothing new; the device's other queues go on.
func TestQueueFails(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		r := newRig(t, cfg, 256, true)
		a, _ := r.pair(8, 4)
		if n, err := a.ep.PostRecv(make([]fabric.RecvWR, 4)); n != 4 || err != nil {
			t.Fatal(n, err)
		}
		why := errors.New("the library has lost it")
		q := r.cq[0]
		q.fail(why)
		n, err := q.Poll(r.buf[:])
		r.must(err)
		if n != 5 || r.buf[0].Status != fabric.StatusFlushed || r.buf[4].Op != fabric.OpDisconnect || r.buf[4].Status != fabric.StatusFatal {
			t.Errorf("%+v", r.buf[:n])
		}
		if asleep, err := q.Arm(); !asleep || err != nil {
			t.Errorf("Arm: %v, %v", asleep, err)
		}
		if err := q.reserve(1); !errors.Is(err, why) {
			t.Errorf("room in it: %v", err)
		}
		r.must(r.cq[1].reserve(1))
		r.cq[1].unreserve(1)
	})
}

// A peer that takes no reads refuses one: it must not wait here for ever.
func TestReadsAtAPeer(t *testing.T) {
	d := &Device{found: &found{initReads: 8}, cfg: Config{MaxReadAtomic: 16}}
	for takes, want := range map[int]int{0: 1, 1: 1, 4: 4, 255: 8} {
		if n := d.readsAt(address{reads: takes}); n != want {
			t.Errorf("%d at a peer that takes %d, want %d", n, takes, want)
		}
	}
}
