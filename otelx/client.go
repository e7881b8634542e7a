package otelx

import (
	"context"
	"errors"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rdmad/rdmad/client"
)

// Method is a client.Method whose requests have spans. It is safe for concurrent use.
type Method struct {
	m          *client.Method
	config     *config
	name       string
	attributes []attribute.KeyValue
}

// Lookup looks target up as conn.Method does, whose errors it returns.
func Lookup(ctx context.Context, conn *client.Conn, target string, opts ...Option) (*Method, error) {
	m, err := conn.Method(ctx, target)
	if err != nil {
		return nil, err
	}
	return Wrap(m, target, opts...), nil
}

// Wrap gives the requests of m spans. target is what it was looked up by, and what spans
// are named by: "node/service/method" or "service/method".
func Wrap(m *client.Method, target string, opts ...Option) *Method {
	w := &Method{m: m, config: newConfig(opts), name: target}
	node, service, method := "", target, ""
	if parts := strings.Split(target, "/"); len(parts) == 3 {
		node, service, method = parts[0], parts[1], parts[2]
	} else if len(parts) == 2 {
		service, method = parts[0], parts[1]
	}
	w.name = service + "/" + method
	w.attributes = attributesOf(service, method)
	if node != "" {
		w.attributes = append(w.attributes, NodeKey.String(node))
	}
	return w
}

// attributesOf returns what all spans of a method have.
func attributesOf(service, method string) []attribute.KeyValue {
	return []attribute.KeyValue{SystemKey.String("rdmad"), ServiceKey.String(service), MethodKey.String(method)}
}

// With returns a variant of the method with other options; client.Carry is not for it.
func (m *Method) With(opts ...client.CallOption) *Method {
	v := *m
	v.m = m.m.With(opts...)
	return &v
}

// Start begins the span of a request, for the ways to make one that Method does not have. The
// method that it returns makes its requests part of the span; end is to be called once, with
// the outcome. A span may be that of several requests, as of a client.Method.CallBatch.
func (m *Method) Start(ctx context.Context, more ...attribute.KeyValue) (_ context.Context, _ *client.Method, end func(error)) {
	ctx, v, span := m.start(ctx, more...)
	return ctx, v, func(err error) { endSpan(span, err) }
}

func (m *Method) start(ctx context.Context, more ...attribute.KeyValue) (context.Context, *client.Method, trace.Span) {
	ctx, span := m.config.tracer().Start(ctx, m.name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(m.attributes...), trace.WithAttributes(more...))
	var c carrier
	m.config.propagator().Inject(ctx, &c)
	v := m.m
	if b := c.encode(); b != nil {
		v = v.With(client.Carry(b))
	}
	return ctx, v, span
}

// Call is client.Method.Call.
func (m *Method) Call(ctx context.Context, req []byte) ([]byte, error) {
	ctx, v, span := m.start(ctx)
	answer, err := v.Call(ctx, req)
	endSpan(span, err)
	return answer, err
}

// CallFunc is client.Method.CallFunc. The span ends when f has returned; an error of f is
// the span's, too.
func (m *Method) CallFunc(ctx context.Context, req []byte, f func(answer []byte) error) error {
	ctx, v, span := m.start(ctx)
	answered, returned := false, false
	defer func() {
		if !returned { // f has panicked
			span.SetAttributes(ErrorKey.String("panic"))
			if answered {
				span.SetAttributes(OutcomeKey.String(OutcomeExecuted))
			}
			span.SetStatus(codes.Error, "the callback panicked")
			span.End()
		}
	}()
	err := v.CallFunc(ctx, req, func(answer []byte) error {
		answered = true
		return f(answer)
	})
	returned = true
	if answered {
		endExecuted(span, err)
	} else {
		endSpan(span, err)
	}
	return err
}

// Post is client.Method.Post. The span ends when the message has been handed to the daemon.
func (m *Method) Post(ctx context.Context, msg []byte) error {
	ctx, v, span := m.start(ctx, OneWayKey.Bool(true))
	err := v.Post(ctx, msg)
	endSpan(span, err)
	return err
}

// Future is a client.Future with a span, which ends when somebody has seen the outcome.
// Wait for it, or cancel it. It is safe for concurrent use.
type Future struct {
	f    *client.Future
	ctx  context.Context // the request's
	span trace.Span
	once sync.Once
	// unseen is used by the first Cancel that comes too late: perhaps nobody waits any more.
	unseen sync.Once
}

// Go is client.Method.Go.
func (m *Method) Go(ctx context.Context, req []byte) (*Future, error) {
	ctx, v, span := m.start(ctx)
	f, err := v.Go(ctx, req)
	if err != nil {
		endSpan(span, err)
		return nil, err
	}
	return &Future{f: f, ctx: ctx, span: span}, nil
}

// Wait is client.Future.Wait.
func (f *Future) Wait(ctx context.Context) ([]byte, error) {
	answer, err := f.f.Wait(ctx)
	// The outcome, which may have come since Wait gave up for its context.
	if _, outcome, ok := f.f.Result(); ok {
		f.once.Do(func() { endSpan(f.span, outcome) })
	} else if err != nil && ctx.Done() != nil && ctx.Done() == f.ctx.Done() {
		f.once.Do(func() { endSpan(f.span, err) }) // who waits with the request's own context does not wait again
	}
	return answer, err
}

// Cancel is client.Future.Cancel. It ends the span, at once if it returns true, and otherwise when the outcome is known.
func (f *Future) Cancel() bool {
	ok := f.f.Cancel()
	if _, err, known := f.f.Result(); known {
		f.once.Do(func() { endSpan(f.span, err) })
		return ok
	}
	f.unseen.Do(func() {
		go func() { // ends with the outcome, which the end of the connection is too
			_, err := f.f.Wait(context.Background())
			f.once.Do(func() { endSpan(f.span, err) })
		}()
	})
	return ok
}

// Stream is a client.Stream with a span, which ends with the stream: when Recv returns an
// error that is not its own context's, or with Close, which says how the stream had ended before.
type Stream struct {
	*client.Stream
	ctx  context.Context // the stream's
	span trace.Span
	once sync.Once
}

// Stream is client.Method.Stream.
func (m *Method) Stream(ctx context.Context) (*Stream, error) {
	ctx, v, span := m.start(ctx)
	s, err := v.Stream(ctx)
	if err != nil {
		endSpan(span, err)
		return nil, err
	}
	return &Stream{Stream: s, ctx: ctx, span: span}, nil
}

// Recv is client.Stream.Recv.
func (s *Stream) Recv(ctx context.Context) ([]byte, error) {
	msg, err := s.Stream.Recv(ctx)
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && s.ctx.Err() == nil: // the wait has ended, and not the stream
	default:
		s.once.Do(func() { endSpan(s.span, err) })
	}
	return msg, err
}

// Close is client.Stream.Close.
func (s *Stream) Close() error {
	s.once.Do(func() { endSpan(s.span, s.Stream.Err()) })
	return s.Stream.Close()
}
