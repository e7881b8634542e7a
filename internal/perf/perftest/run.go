// Package perftest runs both sides of a tool of "rdmad perf" in one process, for tests.
package perftest

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/perf"
)

// patience bounds a run.
const patience = 5 * time.Minute

// Outcome is what a side's run has come to.
type Outcome struct {
	Result any
	Err    error
}

// Provider makes the devices of both sides.
type Provider struct {
	Name string
	New  func() fabric.Provider
}

// Providers are tcp, tcp whose writes have no order, tcp whose queues say more often than it is
// so that they are full, and, in builds with libfabric, one of its
// providers. Its shm is for two processes: those of a command's test.
var Providers = append([]Provider{
	{"tcp", func() fabric.Provider { return tcp.New(tcp.Config{}) }},
	{"reordered", func() fabric.Provider { return fabrictest.NewReorder(tcp.New(tcp.Config{}), 3) }},
	{"faulty", func() fabric.Provider {
		return fabrictest.Faulty(tcp.New(tcp.Config{}), 5, fabrictest.Plan{Delay: 0.2, QueueFull: 0.2})
	}},
}, overLibfabric("tcp;ofi_rxm")...)

// overLibfabric returns a provider of libfabric, none in builds without it.
func overLibfabric(name string) []Provider {
	p, err := libfabric.New(libfabric.Config{Provider: name})
	if err != nil {
		return nil
	}
	return []Provider{{name, func() fabric.Provider { return p }}}
}

func (p Provider) source() perf.Source {
	return perf.Source{Provider: p.New(), Name: p.Name, Version: "test"}
}

// Run runs a server, which is told nothing but the name by tool serving, and a client.
func Run(t testing.TB, p Provider, serving, asking perf.Tool) (server, client Outcome) {
	t.Helper()
	return run(t, p.source(), p.source(), serving, asking)
}

// Between is Run with a provider for each side, which must have one name. It returns the
// client's outcome first.
func Between(t testing.TB, client, server fabric.Provider, asking, serving perf.Tool) (asked, served Outcome) {
	t.Helper()
	source := func(p fabric.Provider) perf.Source { return perf.Source{Provider: p, Name: p.Name(), Version: "test"} }
	served, asked = run(t, source(server), source(client), serving, asking)
	return asked, served
}

// Must is Between for a run that must go well. It returns the client's result.
func Must(t testing.TB, client, server fabric.Provider, asking, serving perf.Tool) any {
	t.Helper()
	c, s := Between(t, client, server, asking, serving)
	if c.Err != nil || s.Err != nil {
		t.Fatalf("client: %v\nserver: %v", c.Err, s.Err)
	}
	return c.Result
}

// Crowd is Must for a client that is several processes, which are goroutines here: member makes the tool
// of each. It returns the outcomes of the leader, of the server and of all members.
func Crowd(t testing.TB, p fabric.Provider, asking perf.Crowd, serving perf.Tool, member func(int) perf.Tool) (asked, served Outcome, members []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	src := perf.Source{Provider: p, Name: p.Name(), Version: "test"}
	ended := make(chan error, asking.Members())
	started := 0
	start := func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		tool := member(started)
		started++
		go func() { ended <- perf.Enlist(ctx, src, theirs, "127.0.0.1", tool) }()
		return ours, nil
	}
	ask := func(address string) Outcome {
		result, err := perf.Muster(ctx, src, address, asking, start, nil)
		return Outcome{result, err}
	}
	served, asked = between(ctx, t, src, serving, ask)
	for range started {
		members = append(members, <-ended)
	}
	return asked, served, members
}

func run(t testing.TB, here, there perf.Source, serving, asking perf.Tool) (server, client Outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return between(ctx, t, here, serving, func(address string) Outcome { return ask(ctx, t, there, address, asking) })
}

// between runs a server, and asks it.
func between(ctx context.Context, t testing.TB, here perf.Source, serving perf.Tool, ask func(address string) Outcome) (server, client Outcome) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan Outcome, 1)
	go func() {
		result, err := perf.Serve(ctx, here, ln, serving, nil, nil)
		served <- Outcome{result, err}
	}()
	client = ask(ln.Addr().String())
	// A client that has not even come leaves the server waiting.
	if client.Err != nil {
		_ = ln.Close()
	}
	server = <-served
	_ = ln.Close()
	return server, client
}

func ask(ctx context.Context, t testing.TB, src perf.Source, address string, tool perf.Tool) (o Outcome) {
	t.Helper()
	n, err := src.Open("127.0.0.1")
	if err != nil {
		return Outcome{Err: err}
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	o.Result, o.Err = perf.Client(ctx, n, address, tool, nil)
	return o
}
