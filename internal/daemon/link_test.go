package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// A session that has ended stays its link's until its lanes rest, which takes turns of their
// agents. Who keeps the link connected sleeps meanwhile: it would take the processor that the
// agents need.
func TestEndedSessionIsAwaitedAsleep(t *testing.T) {
	var busy atomic.Bool // a goroutine that does not sleep would keep the bubble from ever being idle
	watch := time.AfterFunc(10*time.Second, func() { busy.Store(true) })
	defer watch.Stop()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		s := &session{life: context.Background(), endLife: func() {}, done: make(chan struct{}), forgotten: make(chan struct{})}
		c := &conductor{ctx: ctx, node: "a"}
		l := &link{conductor: c, name: "b", session: s, ctx: &impatient{Context: ctx, busy: &busy}, cancel: cancel}
		ended := make(chan struct{})
		go func() {
			l.dialLoop(l.ctx)
			close(ended)
		}()
		close(s.done)
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it did not sleep")
		default:
		}
		cancel()
		close(s.forgotten)
		<-ended
	})
}

// impatient is a context that has ended as soon as busy is set, too.
type impatient struct {
	context.Context
	busy *atomic.Bool
}

func (w *impatient) Err() error {
	if w.busy.Load() {
		return context.Canceled
	}
	return w.Context.Err()
}

// An attempt to connect that fails after the peer has connected is not the connected peer's error, and nothing to report.
func TestAttemptThatFailsBesideASession(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	var lines bytes.Buffer
	r.log = zerolog.New(&lines)
	r.link.session = r.s
	r.link.failed(errors.New("i/o timeout"))
	if s := r.link.status(); s.State != "connected" || s.Error != "" || lines.Len() != 0 {
		t.Errorf("state %q, error %q, and it logged %q", s.State, s.Error, &lines)
	}
}

// A peer that cannot be reached for the same reason again, from another port of this node, is logged once.
func TestUnreachableIsLoggedOnce(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	var lines bytes.Buffer
	r.log = zerolog.New(&lines)
	r.link.session = nil
	for port := range 3 {
		r.link.failed(fmt.Errorf("read tcp 10.0.0.2:%d->10.0.0.1:7471: i/o timeout", 53000+port))
	}
	if n := strings.Count(lines.String(), "peer-unreachable"); n != 1 {
		t.Errorf("it was logged %d times: %s", n, &lines)
	}
	r.link.failed(errors.New("read tcp 10.0.0.2:53003->10.0.0.1:7471: connection reset by peer"))
	if n := strings.Count(lines.String(), "peer-unreachable"); n != 2 {
		t.Errorf("another reason was not logged: %s", &lines)
	}
}

// For how long a peer has been draining is not for how long it has been connected.
func TestDrainingSince(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.link.session = r.s
	for what, change := range map[string]func(){
		"draining":  func() { r.link.peerDrains(r.s, 1) },
		"connected": func() { r.link.peerUndrains(r.s) },
	} {
		r.link.draining = what == "connected"
		r.link.undrained = make(chan struct{})
		r.link.since = time.Now().Add(-time.Hour)
		r.link.changed = r.link.since
		change()
		if s := r.link.status(); s.State != what || s.SinceS > 60 {
			t.Errorf("%s, not %s, for %.0f s", s.State, what, s.SinceS)
		}
	}
}

// A peer whose address refuses connections is given up when it has done so for a while: not at once because its link was lost long before,
// by a network that was cut, for its daemon may be started again just now by somebody who has kept its memory.
func TestHoldCountsFromTheFirstRefusal(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	var lines bytes.Buffer
	r.log = zerolog.New(&lines)
	r.s.err = errors.New("connection reset by peer")
	r.link.since = time.Now().Add(-time.Hour)
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	// heldOut is whether the loss was held out until node.link_hold was over.
	heldOut := func(hold time.Duration) bool {
		lines.Reset()
		r.cfg.Node.LinkHold = hold
		r.link.holding = r.s
		r.link.hold(r.s)
		return strings.Contains(lines.String(), "link-given-up")
	}
	begun := time.Now()
	r.link.failed(refused)
	first := r.link.refusedSince
	if first.Before(begun) {
		t.Errorf("it is refused since %v, and that began at %v", first, begun)
	}
	r.link.refusedSince = first.Add(-time.Hour) // as if this had stood still
	if !heldOut(time.Millisecond) {
		t.Error("the peer is given up at its first refusal")
	}
	r.link.refusedSince = first.Add(time.Hour)
	if r.link.failed(refused); r.link.refusedSince != first.Add(time.Hour) || r.link.gone {
		t.Error("each refusal counts as the first one, or as the last")
	}
	r.link.refusedSince = first.Add(-refusedHold)
	r.link.failed(refused)
	if heldOut(time.Hour) {
		t.Error("a peer that goes on refusing is waited for as any other")
	}
	r.link.refusedSince = first
	if r.link.failed(errors.New("i/o timeout")); !r.link.refusedSince.IsZero() || r.link.gone {
		t.Error("the network is cut, and it counts as refused")
	}
	r.link.failed(refused)
	if again := r.link.refusedSince; again.Before(first) {
		t.Errorf("refused again since %v, before %v", again, first)
	}
	r.s.err = nil
	if !r.link.adopt(r.s) {
		t.Fatal("the session is not served")
	}
	r.mu.Lock()
	since := r.link.refusedSince
	r.mu.Unlock()
	if !since.IsZero() {
		t.Error("there is a session, and the address counts as refusing")
	}
	_ = r.peer.Close()
	<-r.s.forgotten
}
