package otelx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/otelx"
	"github.com/rdmad/rdmad/server"
)

// demo starts two nodes, of which b serves greeter/hello and the stream greeter/chat with
// spans, sets OpenTelemetry up as a program does, with an exporter that keeps spans in
// memory, and attaches to a. stop ends all that and prints the spans.
func demo() (conn *client.Conn, stop func()) {
	exporter := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(exporter)))
	otel.SetTextMapPropagator(propagation.TraceContext{})

	nodes, err := daemontest.Start("")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	srv, err := server.Attach(ctx, nodes.B.Socket)
	if err != nil {
		log.Fatal(err)
	}
	hello := func(c *server.Call) error {
		if len(c.Request()) == 0 {
			return errors.New("nobody to greet")
		}
		return c.Reply(append([]byte("hello "), c.Request()...))
	}
	chat := func(s *server.Stream) error {
		for {
			msg, err := s.Recv()
			if err != nil {
				return nil // there are no more, or the caller has gone
			}
			if err := s.Send(append([]byte("hello "), msg...)); err != nil {
				return err
			}
		}
	}
	err = errors.Join(
		srv.Handle("greeter", "hello", otelx.Handler("greeter", "hello", hello)),
		srv.HandleStream("greeter", "chat", otelx.StreamHandler("greeter", "chat", chat)))
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()
	if conn, err = client.Attach(ctx, nodes.A.Socket); err != nil {
		log.Fatal(err)
	}
	err = daemontest.Poll("b serves", func() error {
		_, err := conn.Method(ctx, "b/greeter/chat")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	return conn, func() {
		_ = conn.Close()
		_ = srv.Close() // after the last handler
		<-done
		if err := nodes.Stop(); err != nil {
			log.Fatal(err)
		}
		show(exporter.GetSpans())
	}
}

// show prints spans, each behind its parent.
func show(spans tracetest.SpanStubs) {
	slices.SortFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var under func(parent trace.SpanID, depth int)
	under = func(parent trace.SpanID, depth int) {
		for _, s := range spans {
			if s.Parent.SpanID() != parent {
				continue
			}
			line := fmt.Sprintf("%s%s span %s", strings.Repeat("  ", depth), s.SpanKind, s.Name)
			for _, a := range s.Attributes {
				if a.Key == otelx.OutcomeKey {
					line += ", " + a.Value.AsString()
				}
			}
			if s.Status.Description != "" {
				line += ": " + s.Status.Description
			}
			fmt.Println(line)
			under(s.SpanContext.SpanID(), depth+1)
		}
	}
	under(trace.SpanID{}, 0)
}
