package randomfill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/perftest"
)

func tool() *Tool {
	return &Tool{Layout: Layout{PageSize: 4099, Pages: 20, Region: 40*4099 + 17}, Seed: 0xb584035fabe6ce9b, Rounds: 3, Depth: 8}
}

// Pages come to their places over every kind of device: one that keeps the order of writes, one
// that keeps none, and one whose queue is full now and then and whose completions are late.
func TestRun(t *testing.T) {
	for name, makes := range map[string]func() fabric.Provider{
		"tcp":     func() fabric.Provider { return tcp.New(tcp.Config{}) },
		"reorder": func() fabric.Provider { return fabrictest.NewReorder(tcp.New(tcp.Config{}), 5) },
		"faulty": func() fabric.Provider {
			return fabrictest.Faulty(tcp.New(tcp.Config{}), 5, fabrictest.Plan{Delay: 0.5, QueueFull: 0.5})
		},
	} {
		for _, event := range []bool{false, true} {
			for _, depth := range []int{1, 2, 8, 1000} {
				t.Run(fmt.Sprintf("%s event %v depth %d", name, event, depth), func(t *testing.T) {
					ask := tool()
					ask.Event, ask.Depth = event, depth
					p := makes()
					r := perftest.Must(t, p, p, ask, new(Tool)).(*Result)
					row := r.Results[0]
					if row.Iterations != 3*2*20 || row.Size != 4099 || row.Latency == nil || row.Bandwidth == nil || row.Bandwidth.Average <= 0 {
						t.Errorf("%+v", r)
					}
					if r.Ordered != (name != "reorder") {
						t.Errorf("order of writes: %v", r.Ordered)
					}
					if name == "faulty" && r.QueueFull == 0 {
						t.Error("the queue was never full")
					}
				})
			}
		}
	}
}

// The immediate, and what the other side says of it, may come before the completion of the write.
func TestLateCompletions(t *testing.T) {
	for _, event := range []bool{false, true} {
		ask := tool()
		ask.Event = event
		late := fabrictest.Faulty(tcp.New(tcp.Config{}), 5, fabrictest.Plan{Delay: 0.99})
		perftest.Must(t, tcp.New(tcp.Config{}), late, ask, new(Tool))
	}
}

// Lists that are given are those that are filled, also with one page, and with all of them.
func TestGivenLists(t *testing.T) {
	p := tcp.New(tcp.Config{})
	ask := tool()
	ask.Pages, ask.Lists = 1, &Lists{{39}, {0}}
	perftest.Must(t, p, p, ask, new(Tool))
	all := make([]uint32, 40)
	for i := range all {
		all[i] = uint32(39 - i)
	}
	ask.Pages, ask.Lists = 40, &Lists{all, all}
	perftest.Must(t, p, p, ask, new(Tool))
}

// What cannot be done is refused by the client before it says a word.
func TestRefusedByClient(t *testing.T) {
	caps := fabric.Caps{MaxSendDepth: 100, MaxRecvDepth: 100}
	for word, change := range map[string]func(*Tool){
		"pages of 0 bytes":           func(t *Tool) { t.PageSize = 0 },
		"--region-size":              func(t *Tool) { t.Region = 4098 },
		"0 requests":                 func(t *Tool) { t.Rounds = 0 },
		"0 writes under way":         func(t *Tool) { t.Depth = 0 },
		"want 1 to 100 (--tx-depth)": func(t *Tool) { t.Depth = 101 },
		"out of range":               func(t *Tool) { t.Pages, t.Lists = 1, &Lists{{40}, {0}} },
		"in the list twice":          func(t *Tool) { t.Pages, t.Lists = 2, &Lists{{0, 1}, {5, 5}} },
	} {
		ask := tool()
		change(ask)
		if err := ask.Check(caps); !perf.IsInput(err) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// rogue is a client that asks for pages that its own check would refuse.
type rogue struct{ *Tool }

func (r rogue) Check(fabric.Caps) error { return nil }

// touched is a rogue that says whether its memory was touched.
type touched struct {
	rogue
	changed bool
}

func (r *touched) Run(ctx context.Context, s *perf.Session) (any, error) {
	back := newBackground(1, 1)
	for _, m := range s.Regions {
		back.fill(m.Bytes())
	}
	result, err := r.Tool.Run(ctx, s)
	// The run has filled them with the background of its first round.
	first := newBackground(r.Seed, 0)
	for i, m := range s.Regions {
		if first.verify(i, m.Bytes(), 0, r.Region) != nil {
			r.changed = true
		}
	}
	return result, err
}

// The server checks what it is asked for, too, and writes no byte for a request that does not
// fit. Both sides know that it was refused and not broken.
func TestRefusedByServer(t *testing.T) {
	for word, lists := range map[string]Lists{
		"out of range":      {{0, 1}, {40, 1}},
		"in the list twice": {{7, 7}, {0, 1}},
	} {
		ask := tool()
		ask.Pages, ask.Lists = 2, &lists
		r := &touched{rogue: rogue{ask}}
		p := tcp.New(tcp.Config{})
		c, s := perftest.Between(t, p, p, r, new(Tool))
		for side, err := range map[string]error{"client": c.Err, "server": s.Err} {
			if !perf.IsInput(err) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %s: %v", word, side, err)
			}
		}
		if r.changed {
			t.Errorf("%s: the client's memory was touched", word)
		}
	}
}

// A connection that breaks in the middle is an error on both sides, and nothing is left.
func TestBroken(t *testing.T) {
	for _, after := range []int{1, 2, 30} {
		p := fabrictest.Faulty(tcp.New(tcp.Config{}), 3, fabrictest.Plan{DisconnectAfter: after, HalfWrite: true})
		c, s := perftest.Between(t, p, p, tool(), new(Tool))
		if c.Err == nil || s.Err == nil || perf.IsInput(c.Err) || perf.IsInput(s.Err) {
			t.Errorf("after %d work requests: client %v, server %v", after, c.Err, s.Err)
		}
		if errors.Is(c.Err, context.DeadlineExceeded) || errors.Is(s.Err, context.DeadlineExceeded) {
			t.Errorf("after %d work requests nobody noticed: client %v, server %v", after, c.Err, s.Err)
		}
	}
}
