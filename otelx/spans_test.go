package otelx_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/otelx"
	"github.com/rdmad/rdmad/server"
)

// rig is two nodes with a service on b whose handlers have spans, and a client on a.
type rig struct {
	*testing.T
	conn  *client.Conn
	spans *tracetest.InMemoryExporter
	opts  []otelx.Option
	// entered is sent to when the slow handler begins, and release lets it return.
	entered, release chan struct{}
}

func newRig(t *testing.T, propagator propagation.TextMapPropagator) *rig {
	t.Helper()
	a, b := daemontest.Pair(t, "")
	r := &rig{T: t, spans: tracetest.NewInMemoryExporter(), entered: make(chan struct{}, 1), release: make(chan struct{})}
	provider := sdk.NewTracerProvider(sdk.WithSyncer(r.spans))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	r.opts = []otelx.Option{otelx.WithTracerProvider(provider), otelx.WithPropagators(propagator)}
	s, err := server.Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	tracer := provider.Tracer("test")
	for name, h := range map[string]server.Handler{
		"echo": func(c *server.Call) error {
			_, span := tracer.Start(c.Context(), "inside")
			span.End()
			return c.Reply(c.Request())
		},
		"fail": func(*server.Call) error { return errors.New("no luck") },
		// long is cut to what fits the slots, and the letter there with it.
		"long":   func(*server.Call) error { return errors.New("x" + strings.Repeat("\u00e9", 1<<16)) },
		"binary": func(*server.Call) error { return errors.New("no luck \xff") },
		"curse":  func(*server.Call) error { panic("no luck \xff") },
		"panic":  func(*server.Call) error { panic("oops") },
		"gate": func(*server.Call) error {
			r.entered <- struct{}{}
			<-r.release
			return errors.New("no luck")
		},
		"slow": func(c *server.Call) error {
			r.entered <- struct{}{}
			<-c.Context().Done()
			<-r.release // the caller has had enough by then
			return c.Context().Err()
		},
	} {
		if err := s.Handle("t", name, otelx.Handler("t", name, h, r.opts...)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Handle("t", "plain", func(c *server.Call) error { return c.Reply(c.Request()) }); err != nil {
		t.Fatal(err)
	}
	if err := s.HandleStream("t", "stream", otelx.StreamHandler("t", "stream", func(st *server.Stream) error {
		for {
			msg, err := st.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = st.Send(msg)
			}
			if err != nil {
				return err
			}
		}
	}, r.opts...)); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background()) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	if r.conn, err = client.Attach(t.Context(), a.Socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.conn.Close() })
	daemontest.Eventually(t, "b serves", func() error {
		_, err := r.conn.Method(t.Context(), "b/t/stream")
		return err
	})
	return r
}

func (r *rig) method(name string) *otelx.Method {
	r.Helper()
	m, err := otelx.Lookup(r.Context(), r.conn, "b/t/"+name, r.opts...)
	if err != nil {
		r.Fatal(err)
	}
	return m
}

// take waits for n spans and returns them by kind and name.
func (r *rig) take(n int) map[string]tracetest.SpanStub {
	r.Helper()
	daemontest.Eventually(r, "spans", func() error {
		if got := len(r.spans.GetSpans()); got < n {
			return fmt.Errorf("%d spans, want %d", got, n)
		}
		return nil
	})
	list := r.spans.GetSpans()
	if len(list) != n {
		r.Errorf("%d spans, want %d", len(list), n)
	}
	m := make(map[string]tracetest.SpanStub)
	for _, s := range list {
		m[s.SpanKind.String()+" "+s.Name] = s
	}
	r.spans.Reset()
	return m
}

func value(s tracetest.SpanStub, k attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == k {
			return a.Value.String()
		}
	}
	return ""
}

// A call is a client span with a server span as its child, and what the handler does with
// its context belongs to that; also tracestate and baggage arrive.
func TestSpans(t *testing.T) {
	r := newRig(t, propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	state, err := trace.ParseTraceState("congo=t61rcWkgMzE")
	if err != nil {
		t.Fatal(err)
	}
	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true})
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), remote)
	for style, do := range map[string]func(m *otelx.Method) error{
		"call": func(m *otelx.Method) error {
			answer, err := m.Call(ctx, []byte("x"))
			if string(answer) != "x" {
				t.Errorf("answer %q", answer)
			}
			return err
		},
		"large": func(m *otelx.Method) error { _, err := m.Call(ctx, make([]byte, 1<<20)); return err },
		"func":  func(m *otelx.Method) error { return m.CallFunc(ctx, []byte("x"), func([]byte) error { return nil }) },
		"future": func(m *otelx.Method) error {
			f, err := m.Go(ctx, []byte("x"))
			if err != nil {
				return err
			}
			for range 2 { // the second time changes nothing
				if _, err = f.Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		},
		"post":   func(m *otelx.Method) error { return m.Post(ctx, []byte("x")) },
		"direct": func(m *otelx.Method) error { _, err := m.With(client.Direct()).Call(ctx, []byte("x")); return err },
		"start": func(m *otelx.Method) error {
			ctx, v, end := m.Start(ctx)
			answers, err := v.CallBatch(ctx, [][]byte{[]byte("x")})
			if err == nil {
				err = answers[0].Err
			}
			end(err)
			return err
		},
	} {
		if err := do(r.method("echo")); err != nil {
			t.Fatalf("%s: %v", style, err)
		}
		m := r.take(3)
		c, s, inside := m["client t/echo"], m["server t/echo"], m["internal inside"]
		if c.Parent.SpanID() != remote.SpanID() || s.Parent.SpanID() != c.SpanContext.SpanID() || !s.Parent.IsRemote() || inside.Parent.SpanID() != s.SpanContext.SpanID() ||
			inside.SpanContext.TraceID() != remote.TraceID() || inside.SpanContext.TraceState().Get("congo") != "t61rcWkgMzE" {
			t.Errorf("%s: not a chain: %+v", style, m)
		}
		for _, span := range []tracetest.SpanStub{c, s} {
			if value(span, otelx.SystemKey) != "rdmad" || value(span, otelx.ServiceKey) != "t" || value(span, otelx.MethodKey) != "echo" || span.Status.Code != codes.Unset {
				t.Errorf("%s: %+v", style, span)
			}
		}
		if value(c, otelx.NodeKey) != "b" || (value(c, otelx.OneWayKey) == "true") != (style == "post") {
			t.Errorf("%s: %+v", style, c.Attributes)
		}
	}
	st, err := r.method("stream").Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.Send(ctx, []byte("x")), st.CloseSend(ctx)); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = st.Recv(ctx)
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if m := r.take(2); m["server t/stream"].Parent.SpanID() != m["client t/stream"].SpanContext.SpanID() || m["client t/stream"].Status.Code != codes.Unset {
		t.Errorf("stream: %+v", m)
	}
}

// Failures are errors of spans, with what is known about the execution.
func TestOutcomes(t *testing.T) {
	r := newRig(t, propagation.TraceContext{})
	for name, want := range map[string]struct{ outcome, kind, server string }{
		"fail":  {otelx.OutcomeExecuted, "remote", "no luck"},
		"panic": {otelx.OutcomeExecuted, "remote", "handler panicked: oops"},
	} {
		if _, err := r.method(name).Call(t.Context(), nil); err == nil {
			t.Fatalf("%s: no error", name)
		}
		r.failed(name, want.outcome, want.kind, want.server)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.method("echo").Call(ctx, nil); !errors.Is(err, client.ErrNotExecuted) {
		t.Fatal(err)
	}
	if m := r.take(1); value(m["client t/echo"], otelx.OutcomeKey) != otelx.OutcomeNotExecuted {
		t.Errorf("%+v", m)
	}
	own := errors.New("own")
	if err := r.method("plain").CallFunc(t.Context(), nil, func([]byte) error { return own }); err != own {
		t.Fatal(err)
	}
	if m := r.take(1); value(m["client t/plain"], otelx.OutcomeKey) != otelx.OutcomeExecuted || value(m["client t/plain"], otelx.ErrorKey) != "_OTHER" {
		t.Errorf("%+v", m)
	}
}

// failed takes the two spans of a call that has failed, and checks what they say of that.
func (r *rig) failed(name, outcome, kind, atServer string) {
	r.Helper()
	m := r.take(2)
	c, s := m["client t/"+name], m["server t/"+name]
	if c.Status.Code != codes.Error || value(c, otelx.OutcomeKey) != outcome || value(c, otelx.ErrorKey) != kind {
		r.Errorf("%s: %+v %+v", name, c.Status, c.Attributes)
	}
	if s.Status.Code != codes.Error || !strings.Contains(s.Status.Description, atServer) {
		r.Errorf("%s: %+v", name, s.Status)
	}
}

// A deadline that passes in the handler is an error of both spans. On a busy machine a request
// comes there only by a later deadline.
func TestDeadlineOutcome(t *testing.T) {
	const most = 2 * time.Minute
	came := false
	for d := 500 * time.Millisecond; !came && !t.Failed() && d < most; d *= 2 {
		// Nodes of its own: a request that comes too late leaves nothing behind.
		t.Run(d.String(), func(t *testing.T) {
			r := newRig(t, propagation.TraceContext{})
			m := r.method("slow")
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := m.Call(ctx, nil)
			close(r.release)
			if err == nil {
				t.Fatal("no error")
			}
			select {
			case <-r.entered:
				came = true
				r.failed("slow", otelx.OutcomeMaybeExecuted, "deadline", "context deadline exceeded")
			default:
				t.Logf("it did not come to the handler: %v", err)
			}
		})
	}
	if !came && !t.Failed() {
		t.Error("the request never came to the handler")
	}
}

// Without a propagator, without spans on one side, and with nonsense from the other side
// calls work as ever.
func TestOneSide(t *testing.T) {
	r := newRig(t, propagation.NewCompositeTextMapPropagator())
	if answer, err := r.method("echo").Call(t.Context(), []byte("x")); err != nil || string(answer) != "x" {
		t.Fatal(answer, err)
	}
	if m := r.take(3); m["server t/echo"].Parent.IsValid() {
		t.Errorf("a parent out of nothing: %+v", m)
	}
	if answer, err := r.method("plain").Call(t.Context(), []byte("x")); err != nil || string(answer) != "x" {
		t.Fatal(answer, err)
	}
	r.take(1)
	m, err := r.conn.Method(t.Context(), "b/t/echo")
	if err != nil {
		t.Fatal(err)
	}
	for _, carried := range []string{"", "nonsense", "\x01\x0b\x05\x00traceparent00-00", strings.Repeat("\xff", client.MaxCarried)} {
		if answer, err := m.With(client.Carry([]byte(carried))).Call(t.Context(), []byte("x")); err != nil || string(answer) != "x" {
			t.Fatal(answer, err)
		}
		if m := r.take(2); m["server t/echo"].Parent.IsValid() {
			t.Errorf("%q: %+v", carried, m)
		}
	}
}

// Many callers at once have each their own children.
func TestConcurrentSpans(t *testing.T) {
	r := newRig(t, propagation.TraceContext{})
	m := r.method("echo")
	var left atomic.Int64
	left.Store(200)
	done := make(chan error, 4)
	for range 4 {
		go func() {
			for left.Add(-1) >= 0 {
				if _, err := m.Call(t.Context(), []byte("x")); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	daemontest.Eventually(t, "spans", func() error {
		if n := len(r.spans.GetSpans()); n != 600 {
			return fmt.Errorf("%d spans", n)
		}
		return nil
	})
	parents := map[trace.SpanID]int{}
	clients := map[trace.SpanID]bool{}
	for _, s := range r.spans.GetSpans() {
		switch s.SpanKind {
		case trace.SpanKindClient:
			clients[s.SpanContext.SpanID()] = true
		case trace.SpanKindServer:
			parents[s.Parent.SpanID()]++
		}
	}
	for id := range clients {
		if parents[id] != 1 {
			t.Errorf("span %v has %d children", id, parents[id])
		}
	}
}

// The span of a stream ends with the stream, and not with a wait; also if the end is heard of by a
// wait that has no time.
func TestStreamSpanEnds(t *testing.T) {
	r := newRig(t, propagation.TraceContext{})
	s, err := r.method("stream").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Recv(over); !errors.Is(err, context.Canceled) {
		t.Fatalf("a wait without time: %v", err)
	}
	if got := len(r.spans.GetSpans()); got != 0 {
		t.Errorf("%d spans have ended with the wait", got)
	}
	if err := s.CloseSend(t.Context()); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the end of the stream", func() error {
		if _, err := s.Recv(over); !errors.Is(err, io.EOF) {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
	m := r.take(2)
	if c := m["client t/stream"]; c.Status.Code == codes.Error {
		t.Errorf("the client's span: %+v", c.Status)
	}
}

// Who uses one context for a request and for the wait for it does nothing more when that has ended, and who
// panics does not either: the spans end all the same.
func TestSpansOfAbandoned(t *testing.T) {
	r := newRig(t, propagation.TraceContext{})
	ended := func(name string) {
		t.Helper()
		daemontest.Eventually(t, "the client's span of "+name, func() error {
			for _, s := range r.spans.GetSpans() {
				if s.SpanKind == trace.SpanKindClient && s.Name == "t/"+name {
					if s.Status.Code != codes.Error {
						t.Errorf("%s: %+v", name, s.Status)
					}
					if executed := slices.Contains(s.Attributes, otelx.OutcomeKey.String(otelx.OutcomeExecuted)); executed != (name == "echo") {
						t.Errorf("%s: %+v", name, s.Attributes)
					}
					return nil
				}
			}
			return errors.New("has not ended")
		})
		r.spans.Reset()
	}
	release := sync.OnceFunc(func() { close(r.release) })
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := r.method("stream").Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f, err := r.method("slow").Go(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-r.entered
	cancel()
	if _, err := s.Recv(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("received: %v", err)
	}
	ended("stream")
	if _, err := f.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waited: %v", err)
	}
	ended("slow")
	release()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = r.method("echo").CallFunc(t.Context(), nil, func([]byte) error { panic("oops") })
	}()
	ended("echo")
}
