// Package perftest runs both sides of a tool of "rdmad perf" in a test.
package perftest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
)

// patience bounds a run. It is never waited for in one that passes.
const patience = 2 * time.Minute

// Outcome is what a side has returned.
type Outcome struct {
	Result any
	Err    error
}

// Run runs a tool over the loopback interface, with a provider for each side, and returns the
// outcomes of client and server. The two tools must be of one type; what the client's says goes
// to the server's.
func Run(t testing.TB, client, server fabric.Provider, ask, serve perf.Tool) (Outcome, Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	served := make(chan Outcome, 1)
	go func() {
		result, err := perf.Serve(ctx, source(server), ln, serve, nil, nil)
		served <- Outcome{result, err}
	}()
	var asked Outcome
	asked.Result, asked.Err = runClient(ctx, source(client), ln.Addr().String(), ask)
	if asked.Err != nil {
		// It may not have come as far as the server.
		_ = ln.Close()
	}
	return asked, <-served
}

func source(p fabric.Provider) perf.Source {
	return perf.Source{Provider: p, Name: p.Name(), Version: "test"}
}

func runClient(ctx context.Context, src perf.Source, address string, tool perf.Tool) (any, error) {
	n, err := src.Open("127.0.0.1")
	if err != nil {
		return nil, err
	}
	result, err := perf.Client(ctx, n, address, tool, nil)
	if closed := n.Close(); err == nil {
		err = closed
	}
	return result, err
}

// Must runs a tool that must go well and returns the client's result.
func Must(t testing.TB, client, server fabric.Provider, ask, serve perf.Tool) any {
	t.Helper()
	c, s := Run(t, client, server, ask, serve)
	if c.Err != nil || s.Err != nil {
		t.Fatalf("client: %v\nserver: %v", c.Err, s.Err)
	}
	return c.Result
}
