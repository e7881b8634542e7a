package otelx_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/otelx"
	"github.com/rdmad/rdmad/server"
)

// BenchmarkCall compares calls of 64 bytes each way between two nodes: without this package,
// with a provider that makes no spans, with one that samples none, and with one that samples
// all and drops them.
func BenchmarkCall(b *testing.B) {
	near, far := daemontest.Pair(b, "")
	srv, err := server.Attach(b.Context(), far.Socket)
	if err != nil {
		b.Fatal(err)
	}
	echo := func(c *server.Call) error { return c.Reply(c.Request()) }
	all := []otelx.Option{otelx.WithTracerProvider(sdk.NewTracerProvider()), otelx.WithPropagators(propagation.TraceContext{})}
	providers := map[string][]otelx.Option{
		"noop":    {otelx.WithTracerProvider(noop.NewTracerProvider()), otelx.WithPropagators(propagation.TraceContext{})},
		"none":    {otelx.WithTracerProvider(sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))), otelx.WithPropagators(propagation.TraceContext{})},
		"sampled": all,
	}
	if err := srv.Handle("t", "plain", echo); err != nil {
		b.Fatal(err)
	}
	for name, opts := range providers {
		if err := srv.Handle("t", name, otelx.Handler("t", name, echo, opts...)); err != nil {
			b.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(context.Background()) }()
	b.Cleanup(func() { _ = srv.Close(); <-done })
	conn, err := client.Attach(b.Context(), near.Socket)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	req := make([]byte, 64)
	for _, name := range []string{"plain", "noop", "none", "sampled"} {
		b.Run(name, func(b *testing.B) {
			var m interface {
				Call(context.Context, []byte) ([]byte, error)
			}
			daemontest.Eventually(b, "served", func() (err error) {
				if m, err = conn.Method(b.Context(), "b/t/"+name); err == nil && name != "plain" {
					m, err = otelx.Lookup(b.Context(), conn, "b/t/"+name, providers[name]...)
				}
				return err
			})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := m.Call(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
