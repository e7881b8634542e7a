package otelx

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Option changes what spans are made of.
type Option func(*config)

type config struct {
	provider    trace.TracerProvider
	propagators propagation.TextMapPropagator
}

// WithTracerProvider sets where spans come from; the default is otel.GetTracerProvider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.provider = p }
}

// WithPropagators sets what goes with requests; the default is
// otel.GetTextMapPropagator. W3C trace context is propagation.TraceContext.
func WithPropagators(p propagation.TextMapPropagator) Option {
	return func(c *config) { c.propagators = p }
}

// scope is the name of this package's tracers.
const scope = "github.com/rdmad/rdmad/otelx"

func newConfig(opts []Option) *config {
	c := &config{}
	for _, f := range opts {
		f(c)
	}
	return c
}

// tracer returns the tracer. The global provider may be set later than this package is
// used first.
func (c *config) tracer() trace.Tracer {
	p := c.provider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return p.Tracer(scope)
}

func (c *config) propagator() propagation.TextMapPropagator {
	if c.propagators != nil {
		return c.propagators
	}
	return otel.GetTextMapPropagator()
}
