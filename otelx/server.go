package otelx

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"github.com/rdmad/rdmad/server"
)

// Handler gives the requests that h handles spans, children of their callers' if these
// have sent any. service and method are what it is going to serve, and what spans are
// named by. The span is in the call's context, and ends with the handler: with an error if
// that returns one, or panics. Without h it returns nil, which Handle refuses.
func Handler(service, method string, h server.Handler, opts ...Option) server.Handler {
	if h == nil {
		return nil
	}
	s := newServing(service, method, opts)
	return func(c *server.Call) error {
		ctx, span := s.start(c.Context(), c.Carried())
		c.SetContext(ctx)
		return handled(span, func() error { return h(c) })
	}
}

// StreamHandler is Handler for streams.
func StreamHandler(service, method string, h server.StreamHandler, opts ...Option) server.StreamHandler {
	if h == nil {
		return nil
	}
	s := newServing(service, method, opts)
	return func(st *server.Stream) error {
		ctx, span := s.start(st.Context(), st.Carried())
		st.SetContext(ctx)
		return handled(span, func() error { return h(st) })
	}
}

// serving makes the spans of a method that is served.
type serving struct {
	config *config
	name   string
	opts   []trace.SpanStartOption
}

func newServing(service, method string, opts []Option) *serving {
	return &serving{
		config: newConfig(opts), name: service + "/" + method,
		opts: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributesOf(service, method)...)},
	}
}

// start begins a span, as a child of what the caller has sent.
func (s *serving) start(ctx context.Context, carried []byte) (context.Context, trace.Span) {
	if len(carried) > 0 {
		ctx = s.config.propagator().Extract(ctx, decode(carried))
	}
	return s.config.tracer().Start(ctx, s.name, s.opts...)
}

// handled runs a handler and ends its span.
func handled(span trace.Span, h func() error) error {
	returned := false
	defer func() {
		if returned {
			return
		}
		// It goes on: the library answers for it.
		text := "handler exited"
		p := recover()
		if p != nil {
			text = fmt.Sprintf("handler panicked: %v", p)
		}
		span.SetAttributes(ErrorKey.String("panic"))
		setError(span, text)
		span.End()
		if p != nil {
			panic(p)
		}
	}()
	err := h()
	returned = true
	if err != nil {
		span.SetAttributes(ErrorKey.String("remote"))
		setError(span, err.Error())
	}
	span.End()
	return err
}
