package atomics

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/perftest"
)

// tool is one whose client is one process.
func tool(connections, depth int) *Tool {
	return &Tool{Types: Types, Clients: 1, Connections: connections, Count: 100, Depth: depth}
}

// Every increment counts, however many clients there are, and whatever the device does to
// completions and its queue.
func TestRun(t *testing.T) {
	for name, p := range map[string]fabric.Provider{
		"tcp":     tcp.New(tcp.Config{}),
		"reorder": fabrictest.NewReorder(tcp.New(tcp.Config{}), 1),
		"faulty":  fabrictest.Faulty(tcp.New(tcp.Config{}), 1, fabrictest.Plan{Delay: 0.5, QueueFull: 0.3}),
	} {
		for _, shape := range [][2]int{{1, 1}, {4, 1}, {3, 16}} {
			for _, event := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %d clients depth %d event %v", name, shape[0], shape[1], event), func(t *testing.T) {
					ask := tool(shape[0], shape[1])
					ask.Event = event
					r := perftest.Must(t, p, p, ask, new(Tool)).(*Result)
					if len(r.Results) != 2 {
						t.Fatalf("%d results", len(r.Results))
					}
					total := uint64(100 * shape[0])
					for i, row := range r.Results {
						if row.Type != Types[i] || row.Increments != total || row.Final != start+total || row.Iterations != total+row.Failed ||
							row.Latency == nil || row.Bandwidth == nil {
							t.Errorf("%+v", row)
						}
					}
					if add := r.Results[0]; add.Failed != 0 {
						t.Errorf("%d additions have failed", add.Failed)
					}
					if swap := r.Results[1]; shape[0] == 1 && swap.Failed != 0 {
						t.Errorf("%d swaps of the only client have failed", swap.Failed)
					} else if shape[0] > 1 && swap.Failed == 0 {
						// All expect the same value at the beginning, of which one is right.
						t.Error("no swap has failed: there was no contention")
					}
				})
			}
		}
	}
}

// A server that counts wrongly is found out: one increment is lost, or counts twice.
func TestNotAtomic(t *testing.T) {
	for name, by := range map[string]uint64{"lost": ^uint64(0), "twice": 1} {
		t.Run(name, func(t *testing.T) {
			p := tcp.New(tcp.Config{})
			c, s := perftest.Between(t, p, p, tool(2, 1), &crooked{Tool: new(Tool), by: by})
			var wrong *AtomicityError
			if !errors.As(c.Err, &wrong) || s.Err == nil {
				t.Errorf("client: %v\nserver: %v", c.Err, s.Err)
			}
		})
	}
}

// crooked is a server that changes the counter before it tells what it is.
type crooked struct {
	*Tool
	by uint64
}

func (c *crooked) Run(ctx context.Context, s *perf.Session) (any, error) {
	memory := s.Region.Bytes()
	prepare(memory)
	// Who begins elsewhere ends elsewhere.
	binary.NativeEndian.PutUint64(memory[offset(FetchAdd):], start+c.by)
	if err := s.Barrier(ctx); err != nil {
		return nil, err
	}
	var done over
	if err := s.Hear(ctx, kindOver, &done); err != nil {
		return nil, err
	}
	return nil, s.Link.Send(kindFinal, final{Value: word(memory, offset(done.Type))})
}

// Tickets settle exactly if each value was given out once.
func TestTickets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Uint64Range(1, 200).Draw(t, "total")
		order := make([]uint64, total)
		for i := range order {
			order[i] = start + uint64(i)
		}
		order = rapid.Permutation(order).Draw(t, "order")
		b := newTickets(total)
		for _, old := range order {
			if err := b.take(old); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.settle("", start+total); err != nil {
			t.Fatal(err)
		}
		if b.settle("", start+total-1) == nil || b.settle("", start+total+1) == nil {
			t.Fatal("another end passes")
		}
		if err := b.take(order[0]); err == nil {
			t.Fatal("a value is given out twice")
		}
		for _, old := range []uint64{start - 1, start + total, 0} {
			if err := b.take(old); err == nil {
				t.Fatalf("%d is given out", old)
			}
		}
		short := newTickets(total + 1)
		for _, old := range order {
			if err := short.take(old); err != nil {
				t.Fatal(err)
			}
		}
		if short.settle("", start+total+1) == nil {
			t.Fatal("an increment that was never done passes")
		}
	})
}

// Whatever but a counter changes is noticed.
func TestInspect(t *testing.T) {
	memory := make([]byte, memorySize)
	prepare(memory)
	if err := inspect(memory); err != nil {
		t.Fatal(err)
	}
	for at := range memory {
		memory[at]++
		counter := at/wordSize*wordSize == offset(FetchAdd) || at/wordSize*wordSize == offset(CompareSwap)
		if err := inspect(memory); (err == nil) != counter {
			t.Errorf("byte %d: %v", at, err)
		}
		memory[at]--
	}
}

// A compare-and-swap may fail only because another has counted.
func TestFailedSwap(t *testing.T) {
	for _, c := range []struct {
		found uint64
		good  bool
	}{{start + 5, true}, {start + 4, false}, {start - 1, false}, {start + 200, true}, {start + 201, false}, {0, false}} {
		e := end{guess: start + 5 - 1, posted: 1, begun: []int64{0}}
		if c.found == start+4 {
			e.guess = start + 5
		}
		s := &perf.Session{Region: region(make([]byte, wordSize))}
		n := &counting{Tool: tool(2, 1), s: s, kind: CompareSwap, ends: []end{e}, tickets: newTickets(200), samples: samples()}
		binary.NativeEndian.PutUint64(s.Region.Bytes(), c.found)
		err := n.completed(fabric.Completion{Op: fabric.OpCompareSwap})
		if (err == nil) != c.good {
			t.Errorf("%d instead of %d: %v", c.found, e.guess, err)
		}
		if c.good && (n.misses != 1 || n.ends[0].guess != c.found || n.ends[0].posted != 0) {
			t.Errorf("%d: it goes on with %+v", c.found, n.ends[0])
		}
	}
}

// A device without atomic operations is refused, as is what makes no sense.
func TestRefused(t *testing.T) {
	good := fabric.Caps{Atomics: true, MaxSendDepth: 100, MaxRecvDepth: 100}
	if err := tool(2, 2).Check(good); err != nil {
		t.Fatal(err)
	}
	if err := tool(2, 2).Check(fabric.Caps{MaxSendDepth: 100}); !perf.IsInput(err) || !strings.Contains(err.Error(), "no atomic operations") {
		t.Error(err)
	}
	for word, change := range map[string]func(*Tool){
		"0 clients":                func(t *Tool) { t.Clients = 0 },
		"257 clients":              func(t *Tool) { t.Clients = 257 },
		"0 connections":            func(t *Tool) { t.Connections = 0 },
		"129 connections":          func(t *Tool) { t.Clients, t.Connections = 2, 129 },
		"0 increments":             func(t *Tool) { t.Count = 0 },
		"(--iters)":                func(t *Tool) { t.Count = MaxIncrements },
		"0 operations under way":   func(t *Tool) { t.Depth = 0 },
		"101 operations under way": func(t *Tool) { t.Depth = 101 },
		"0 types":                  func(t *Tool) { t.Types = nil },
		"NONSENSE":                 func(t *Tool) { t.Types = []string{"NONSENSE"} },
		"once":                     func(t *Tool) { t.Types = []string{FetchAdd, FetchAdd} },
	} {
		ask := tool(2, 2)
		change(ask)
		if err := ask.Check(good); !perf.IsInput(err) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// A server whose device has no atomic operations says so to the client, which ends as one that
// was refused.
func TestServerWithoutAtomics(t *testing.T) {
	c, s := perftest.Between(t, tcp.New(tcp.Config{}), plain{tcp.New(tcp.Config{})}, tool(1, 1), new(Tool))
	for side, err := range map[string]error{"client": c.Err, "server": s.Err} {
		if !perf.IsInput(err) || !strings.Contains(err.Error(), "no atomic operations") {
			t.Errorf("%s: %v", side, err)
		}
	}
}

// Connections that break are errors on both sides.
func TestBroken(t *testing.T) {
	p := fabrictest.Faulty(tcp.New(tcp.Config{}), 3, fabrictest.Plan{DisconnectAfter: 7})
	c, s := perftest.Between(t, p, p, tool(3, 2), new(Tool))
	if c.Err == nil || s.Err == nil || perf.IsInput(c.Err) || perf.IsInput(s.Err) {
		t.Errorf("client %v, server %v", c.Err, s.Err)
	}
}
