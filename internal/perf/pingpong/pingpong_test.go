package pingpong

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/perftest"
	"github.com/rdmad/rdmad/internal/perf/report"
)

// sizes are smaller than, equal to and larger than what the stamps of verified messages,
// inline work requests and receive buffers have room for.
var sizes = []int{1, 2, 8, 16, 17, 96, 97, 4096, 100_000, 64}

// Every message of every kind arrives as it was sent, whether both sides poll or sleep, and
// where writes have no order.
func TestRoundTrips(t *testing.T) {
	for _, p := range perftest.Providers {
		for _, op := range Ops {
			for _, event := range []bool{false, true} {
				if op == opWrite && (event || p.Name != "tcp" && p.Name != "faulty") {
					continue // see TestWriteNeedsOrder
				}
				for _, verify := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/event=%v/verify=%v", p.Name, op, event, verify), func(t *testing.T) {
						count := uint64(40)
						if !event {
							count = 6 // with less than two processors for it, each takes a while
						}
						tool := &Tool{Op: op, Work: perf.Work{Sizes: sizes, Count: count, Event: event, Verify: verify, Seed: 9, Inline: -1}}
						check(t, p, tool, count)
					})
				}
			}
		}
	}
}

func check(t *testing.T, p perftest.Provider, tool *Tool, count uint64) {
	t.Helper()
	server, client := perftest.Run(t, p, new(Tool), tool)
	if server.Err != nil || client.Err != nil {
		t.Fatalf("server: %v, client: %v", server.Err, client.Err)
	}
	r := client.Result.(*report.Report)
	if len(r.Results) != len(tool.Sizes) {
		t.Fatalf("%d results", len(r.Results))
	}
	for i, row := range r.Results {
		l := row.Latency
		if row.Size != tool.Sizes[i] || row.Iterations < count || row.Iterations > count && tool.Count > 0 || l == nil || row.Bandwidth != nil {
			t.Fatalf("%+v", row)
		}
		if l.Min <= 0 || l.Min > l.Typical || l.Typical > l.P90 || l.P90 > l.P99 || l.P99 > l.Max {
			t.Errorf("%+v", l)
		}
	}
	if p.Name != "tcp" {
		return // wrappers do not know what they use
	}
	if u := r.Info.Client; u.Provider != p.Name || u.Address == "" || u.MTU == 0 || u.Transport == "" || r.Info.Server.Address == "" {
		t.Errorf("it has used %+v", r.Info)
	}
}

func TestDuration(t *testing.T) {
	tool := &Tool{Op: opSend, Work: perf.Work{Sizes: []int{8}, Duration: 20 * time.Millisecond, Event: true, Inline: 0}}
	check(t, perftest.Providers[0], tool, 1)
}

// A plain write is refused where nobody could tell that it has arrived, before a connection
// is made.
func TestWriteNeedsOrder(t *testing.T) {
	for _, c := range []struct {
		event, ordered bool
	}{{true, true}, {false, false}} {
		tool := &Tool{Op: opWrite, Work: perf.Work{Sizes: []int{8}, Count: 1, Event: c.event, Inline: -1}}
		err := tool.Check(fabric.Caps{OrderedWrites: c.ordered})
		if !perf.IsInput(err) || !strings.Contains(err.Error(), "write-imm") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A server checks what it is asked for itself.
func TestServerRefuses(t *testing.T) {
	for _, op := range []string{"nonsense", ""} {
		server, client := perftest.Run(t, perftest.Providers[0], new(Tool), &lying{Tool{Op: op, Work: perf.Work{Sizes: []int{8}, Count: 1, Inline: -1}}})
		if !perf.IsInput(server.Err) || !perf.IsInput(client.Err) || !strings.Contains(client.Err.Error(), "want one of") {
			t.Errorf("server: %v, client: %v", server.Err, client.Err)
		}
	}
}

// lying is a client that checks nothing.
type lying struct{ Tool }

func (*lying) Check(fabric.Caps) error { return nil }

// Content that is not what it should be is noticed on the side where it arrives.
func TestWrongContent(t *testing.T) {
	for _, op := range []string{opSend, opWrite, opWriteImm} {
		// With another seed than it was told.
		server, client := perftest.Run(t, perftest.Providers[0], new(Tool), &forgetful{Tool{Op: op, Work: perf.Work{Sizes: []int{100}, Count: 10, Verify: true, Seed: 1, Inline: -1}}})
		if server.Err == nil || !strings.Contains(server.Err.Error(), "wrong content") {
			t.Errorf("%s: the server: %v", op, server.Err)
		}
		if client.Err == nil || perf.IsInput(client.Err) {
			t.Errorf("%s: the client: %v", op, client.Err)
		}
	}
}

// forgetful makes content of another seed than it has told.
type forgetful struct{ Tool }

func (f *forgetful) Plan(r fabric.Role) perf.Plan {
	p := f.Tool.Plan(r)
	f.Seed++
	return p
}
