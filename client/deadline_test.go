package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// counter returns a counter of a node.
func counter(t *testing.T, n *daemontest.Node, name string) uint64 {
	t.Helper()
	st, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Counters[name]
}

// A deadline that is too far away for a clock in nanoseconds never passes, on the own node and on another.
func TestDeadlineForEver(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	for _, n := range []*daemontest.Node{a, b} {
		serve(t, n, 2, nil)
		serveStreams(t, n, streams{"stream": echoStream})
	}
	c := attach(t, a)
	ends := []time.Time{time.Now().Add(math.MaxInt64), time.Now().Add(farthest + time.Hour), time.Now().Add(farthest - time.Hour), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}
	for _, node := range []string{"a", "b"} {
		m, streaming := method(t, c, node+"/t/echo"), method(t, c, node+"/t/stream")
		for _, end := range ends {
			ctx, cancel := context.WithDeadline(t.Context(), end)
			for _, size := range []int{1, 1 << 20} {
				if res, err := m.Call(ctx, make([]byte, size)); err != nil || len(res) != size {
					t.Errorf("%s, until %v: %d bytes of %d, %v", node, end, len(res), size, err)
				}
			}
			s, err := streaming.Stream(ctx)
			if err != nil {
				t.Fatalf("%s, until %v: %v", node, end, err)
			}
			err = s.Send(ctx, []byte("x"))
			res, err2 := s.Recv(ctx)
			if err := errors.Join(err, err2, s.Close()); err != nil || string(res) != "x" {
				t.Errorf("%s, a stream until %v: %q, %v", node, end, res, err)
			}
			cancel()
		}
	}
}

// farthest is how far away a deadline may be that is not taken for none.
const farthest = time.Duration(1 << 62)

// expired checks that a request was dropped because of its deadline.
func expired(t *testing.T, f *client.Future) {
	t.Helper()
	within(t, "an expired request", func() {
		var late *client.DeadlineError
		if _, err := f.Wait(t.Context()); !errors.As(err, &late) || late.Sent || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrMaybeExecuted) {
			t.Errorf("an expired request: %v", err)
		}
	})
}

// passed calls begin with the context of a deadline, and again with that of a later one,
// until it returns true, which says that it has done its part before the deadline. It
// returns when the last deadline has passed by the clocks of both nodes.
func passed(t *testing.T, begin func(context.Context) bool) {
	t.Helper()
	daemontest.InTime(t, "requests before their deadline", func(ctx context.Context) bool {
		ok := begin(ctx)
		<-ctx.Done()
		return ok
	})
	// The receiver knows the caller's clock only to half a round trip of the
	// handshake.
	time.Sleep(200 * time.Millisecond)
}

// goBefore sends a request, and reports false if its deadline has passed before that.
func goBefore(t *testing.T, ctx context.Context, m *client.Method) (*client.Future, bool) {
	t.Helper()
	f, err := m.Go(ctx, nil)
	var late *client.DeadlineError
	if err != nil && (!errors.As(err, &late) || late.Sent || ctx.Err() == nil) {
		t.Fatal(err)
	}
	return f, err == nil
}

// counted is a handler that counts.
func counted(ran *atomic.Int64) server.Handler {
	return func(*server.Call) error { ran.Add(1); return nil }
}

// The first place where a deadline is checked is the claim: a request whose time is
// over claims nothing, and one that waits for slots waits no longer.
func TestDeadlineAtTheClaim(t *testing.T) {
	a, b := daemontest.Pair(t, tiny)
	g := newGate()
	defer g.Open()
	var ran atomic.Int64
	serve(t, b, 1, handlers{"gate": g.handle, "count": counted(&ran)})
	c := attach(t, a)
	gates, count := method(t, c, "b/t/gate"), method(t, c, "b/t/count")
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	ended, end := context.WithCancel(t.Context())
	end()
	for _, ctx := range []context.Context{over, ended} {
		for what, err := range map[string]error{
			"call": second(count.Call(ctx, nil)), "go": second(count.Go(ctx, nil)), "reserve": second(count.Reserve(ctx, 1)),
			"post": count.Post(ctx, nil), "batch": second(count.CallBatch(ctx, make([][]byte, 2))),
		} {
			var late *client.DeadlineError
			if !errors.As(err, &late) || late.Sent || !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if err := a.Quiet(); err != nil {
		t.Error(err)
	}
	if n := counter(t, a, "refused") + counter(t, a, "requests_sent"); n != 0 {
		t.Errorf("%d requests were claimed and published after their time", n)
	}
	fs := outstanding(t, gates, 64)
	for _, how := range []func(context.Context) (context.Context, context.CancelFunc){
		context.WithCancel,
		func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 20*time.Millisecond)
		},
	} {
		ctx, cancel := how(t.Context())
		waiting := make(chan error, 4)
		for range cap(waiting) { // one sleeps for slots, the others for it
			go func() { waiting <- second(count.Call(ctx, nil)) }()
		}
		time.AfterFunc(20*time.Millisecond, cancel)
		within(t, "a call through a full ring", func() {
			for range cap(waiting) {
				var late *client.DeadlineError
				if err := <-waiting; !errors.As(err, &late) || late.Sent {
					t.Errorf("a call through a full ring: %v", err)
				}
			}
		})
	}
	g.Open()
	for _, f := range fs {
		if _, err := f.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	quiet(t, a, b)
	if n := ran.Load(); n != 0 {
		t.Errorf("%d requests were executed after their time", n)
	}
}

// stops is how often a core is stopped at most by tests of what it refuses when it goes on: one that is
// stopped between its look at the clock and what it decides by that is none the wiser, and the next place has
// to see to it.
const stops = 10

// The second is the sender: a request that is published and not taken in time is not
// sent.
func TestDeadlineAtTheSender(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	var ran atomic.Int64
	serve(t, b, 1, handlers{"count": counted(&ran)})
	count := method(t, attach(t, a), "b/t/count")
	stopped := func() bool {
		sent, refused, failed := counter(t, a, "requests_sent"), counter(t, a, "refused"), counter(t, a, "oneway_failed")
		resume, err := a.StopCore()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resume() }()
		var fs []*client.Future
		posts := 0
		passed(t, func(ctx context.Context) bool {
			f, ok := goBefore(t, ctx, count)
			if !ok {
				return false
			}
			fs = append(fs, f)
			err := count.Post(ctx, nil)
			if err == nil {
				posts++
			} else if !errors.Is(err, client.ErrDeadline) || ctx.Err() == nil {
				t.Fatal(err)
			}
			return err == nil
		})
		if err := resume(); err != nil {
			t.Fatal(err)
		}
		for _, f := range fs {
			expired(t, f)
		}
		quiet(t, a, b)
		if counter(t, a, "requests_sent") != sent {
			return false
		}
		// Who waits is told of a message that is taken back, of a one-way message nobody.
		if k, n := counter(t, a, "refused")-refused, counter(t, a, "oneway_failed")-failed; k != uint64(len(fs)+posts) || n != uint64(posts) {
			t.Errorf("%d refused of %d, %d of them one way of %d", k, len(fs)+posts, n, posts)
		}
		return true
	}
	for n := 1; !stopped(); n++ {
		if n == stops {
			t.Fatalf("requests were sent after their time, each of %d times", n)
		}
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("%d requests were executed after their time", n)
	}
}

// The third is the receiver: a request that arrives too late is not given to a
// process.
func TestDeadlineAtTheReceiver(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	var ran atomic.Int64
	serve(t, b, 1, handlers{"count": counted(&ran)})
	count := method(t, attach(t, a), "b/t/count")
	stopped := func() bool {
		sent, refused := counter(t, a, "requests_sent"), counter(t, b, "refused")
		resume, err := b.StopCore()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resume() }()
		var fs []*client.Future
		passed(t, func(ctx context.Context) bool {
			f, ok := goBefore(t, ctx, count)
			if ok {
				fs = append(fs, f)
			}
			for ok && counter(t, a, "requests_sent") == sent {
				ok = ctx.Err() == nil
			}
			return ok
		})
		if err := resume(); err != nil {
			t.Fatal(err)
		}
		for _, f := range fs {
			expired(t, f)
		}
		quiet(t, a, b)
		sent = counter(t, a, "requests_sent") - sent
		return sent > 0 && counter(t, b, "refused")-refused == sent
	}
	for n := 1; !stopped(); n++ {
		if n == stops {
			t.Fatalf("the receiver's daemon did not refuse all requests, any of %d times", n)
		}
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("%d requests were executed after their time", n)
	}
}

// The fourth is the handler: a request that a process has and has not started in
// time is not executed.
func TestDeadlineAtTheHandler(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	var ran atomic.Int64
	serve(t, b, 1, handlers{"gate": g.handle, "count": counted(&ran)})
	c := attach(t, a)
	gates, count := method(t, c, "b/t/gate"), method(t, c, "b/t/count")
	blocking := outstanding(t, gates, 1)
	<-g.entered
	var fs []*client.Future
	passed(t, func(ctx context.Context) bool {
		accepted := func() uint64 {
			st, err := b.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return st.Counters["requests_received"] - st.Counters["refused"]
		}
		before := accepted()
		f, ok := goBefore(t, ctx, count)
		if ok {
			fs = append(fs, f)
		}
		for ok && accepted() == before {
			ok = ctx.Err() == nil
		}
		return ok
	})
	g.Open()
	for _, f := range fs {
		expired(t, f)
	}
	if _, err := blocking[0].Wait(t.Context()); err != nil {
		t.Error(err)
	}
	quiet(t, a, b)
	if n := counter(t, b, "refused"); n >= uint64(len(fs)) {
		t.Errorf("the daemon refused %d requests of %d; the last was to be refused by the process", n, len(fs))
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("%d requests were executed after their time", n)
	}
}

// A request that the daemon has taken is not called back, whether its handler has
// started or not.
func TestCancelAfterSend(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	g := newGate()
	defer g.Open()
	var ran atomic.Int64
	serve(t, b, 1, handlers{"gate": g.handle, "count": counted(&ran)})
	c := attach(t, a)
	gates, count := method(t, c, "b/t/gate"), method(t, c, "b/t/count")
	blocking := outstanding(t, gates, 1)
	<-g.entered
	f, err := count.Go(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() { given <- second(count.Call(ctx, nil)) }()
	daemontest.Eventually(t, "the requests are sent", func() error {
		if n := counter(t, a, "requests_sent"); n != 3 {
			return fmt.Errorf("%d requests sent", n)
		}
		return nil
	})
	if f.Cancel() || blocking[0].Cancel() {
		t.Error("a request that was sent was called back")
	}
	cancel()
	var late *client.DeadlineError
	if err := <-given; !errors.As(err, &late) || !late.Sent || !errors.Is(err, client.ErrMaybeExecuted) {
		t.Errorf("the end of a call's context: %v", err)
	}
	if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrNotExecuted) {
		t.Errorf("a request that was called off before it had started: %v", err)
	}
	// Nobody waits for the call any more, so nobody is told when it is called off.
	daemontest.Eventually(t, "the call is called off", func() error {
		if n := counter(t, b, "cancelled"); n != 2 {
			return fmt.Errorf("%d requests called off", n)
		}
		return nil
	})
	g.Open()
	if got, err := blocking[0].Wait(t.Context()); err != nil || string(got) != "ok" {
		t.Errorf("one whose handler had started: %q, %v", got, err)
	}
	quiet(t, a, b)
	if n := ran.Load(); n != 0 {
		t.Errorf("%d requests were executed", n)
	}
}
