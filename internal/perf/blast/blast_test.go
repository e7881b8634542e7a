package blast

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

var sizes = []int{1, 97, 70_000, 64}

// Every message of every kind arrives as it was sent, with windows of all sorts, whether both
// sides poll or sleep, and where writes have no order.
func TestStreams(t *testing.T) {
	for _, p := range perftest.Providers {
		for _, op := range Ops {
			for _, event := range []bool{false, true} {
				for _, w := range []struct {
					tx, rx, list, queues int
					both                 bool
				}{{1, 1, 1, 1, false}, {7, 3, 2, 1, true}, {16, 64, 16, 1, false}, {64, 5, 3, 3, false}, {9, 4, 2, 3, true}} {
					if !event && (w.list == 1 || w.queues > 1 || p.Name != "tcp") {
						continue // each message takes a turn of the processor
					}
					t.Run(fmt.Sprintf("%s/%s/event=%v/%v", p.Name, op, event, w), func(t *testing.T) {
						const count = 40
						tool := &Tool{Op: op, Queues: w.queues, Both: w.both, TxDepth: w.tx, RxDepth: w.rx, PostList: w.list,
							Work: perf.Work{Sizes: sizes, Count: count, Event: event, Verify: true, Seed: 9, Inline: -1}}
						measured(t, p, tool, count)
						if p.Name == "tcp" {
							tool.Verify, tool.Sizes = false, []int{64, 5000}
							measured(t, p, tool, count)
						}
					})
				}
			}
		}
	}
}

func measured(t *testing.T, p perftest.Provider, tool *Tool, count uint64) {
	t.Helper()
	server, client := perftest.Run(t, p, new(Tool), tool)
	if server.Err != nil || client.Err != nil {
		t.Fatalf("server: %v, client: %v", server.Err, client.Err)
	}
	r := client.Result.(*report.Report)
	if len(r.Results) != len(tool.Sizes) {
		t.Fatalf("%d results", len(r.Results))
	}
	count *= uint64(tool.Queues)
	if tool.Both {
		count *= 2
	}
	for i, row := range r.Results {
		b := row.Bandwidth
		if row.Size != tool.Sizes[i] || row.Iterations < count || row.Iterations > count && tool.Count > 0 || b == nil || row.Latency != nil {
			t.Fatalf("%+v", row)
		}
		if b.Average <= 0 || b.Peak < b.Average && b.Peak != 0 || b.MsgRate <= 0 {
			t.Errorf("%+v", b)
		}
	}
}

func TestDuration(t *testing.T) {
	for _, op := range Ops {
		for _, verify := range []bool{false, true} {
			for _, queues := range []int{1, 5} {
				tool := &Tool{Op: op, Queues: queues, Both: queues > 1, TxDepth: 16, RxDepth: 12, PostList: 1,
					Work: perf.Work{Sizes: []int{8, 3000}, Duration: 20 * time.Millisecond, Verify: verify, Inline: 0}}
				measured(t, perftest.Providers[0], tool, 1)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	caps := fabric.Caps{MaxInline: 10, MaxSendDepth: 100, MaxRecvDepth: 50}
	good := func() *Tool {
		return &Tool{Op: opSend, Queues: 1, TxDepth: 99, RxDepth: 50, PostList: 99, Work: perf.Work{Sizes: []int{1, perf.LargestSize}, Count: 1, Inline: 10}}
	}
	if err := good().Check(caps); err != nil {
		t.Fatal(err)
	}
	for flag, spoil := range map[string]func(*Tool){
		"--op":          func(t *Tool) { t.Op = "atomic" },
		"--tx-depth":    func(t *Tool) { t.TxDepth = 100 },
		"--rx-depth":    func(t *Tool) { t.RxDepth = 51 },
		"--post-list":   func(t *Tool) { t.PostList = 100 },
		"--qp 0":        func(t *Tool) { t.Queues = 0 },
		"--qp 129":      func(t *Tool) { t.Queues = 129 },
		"of memory":     func(t *Tool) { t.Queues, t.Both = 65, true },
		"--size":        func(t *Tool) { t.Sizes = []int{0} },
		"0 bytes":       func(t *Tool) { t.Sizes = []int{perf.LargestSize + 1} },
		"sizes":         func(t *Tool) { t.Sizes = nil },
		"--iters":       func(t *Tool) { t.Count = 0 },
		"--duration":    func(t *Tool) { t.Duration = time.Second },
		"--inline-size": func(t *Tool) { t.Inline = 11 },
	} {
		tool := good()
		spoil(tool)
		if err := tool.Check(caps); !perf.IsInput(err) || !strings.Contains(err.Error(), strings.TrimPrefix(flag, "0 ")) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// A side of whose business nothing is does not poll, whatever it was asked for, and others do as they
// were asked.
func TestTargetSleeps(t *testing.T) {
	for _, op := range Ops {
		for _, both := range []bool{false, true} {
			tool := &Tool{Op: op, Queues: 2, Both: both, TxDepth: 4, RxDepth: 4, PostList: 1, Work: perf.Work{Sizes: []int{8}, Count: 1}}
			if tool.Plan(fabric.Active).Event {
				t.Errorf("%s, both %v: the client sleeps", op, both)
			}
			if got, want := tool.Plan(fabric.Passive).Event, !both && (op == opWrite || op == opRead); got != want {
				t.Errorf("%s, both %v: the server sleeps: %v", op, both, got)
			}
		}
	}
}

// Queue pairs share no memory and no content.
func TestQueuesApart(t *testing.T) {
	tool := &Tool{Op: opWrite, Queues: 3, Both: true, TxDepth: 7, RxDepth: 5, PostList: 1, Work: perf.Work{Sizes: []int{100}, Count: 1, Verify: true}}
	l, p := tool.layout(), tool.Plan(fabric.Active)
	if p.Endpoints != 6 || p.Buffer != 6*l.size || l.slots*l.stride > l.word || l.word+align > l.source || l.source+align > l.size {
		t.Errorf("%+v, %+v", p, l)
	}
	seeds := map[uint64]bool{}
	for i := range p.Endpoints {
		if seeds[tool.seedOf(i)] {
			t.Errorf("endpoint %d has the content of another one", i)
		}
		seeds[tool.seedOf(i)] = true
		if tool.sends(fabric.Active, i) == tool.sends(fabric.Passive, i) || tool.sends(fabric.Active, i) != (i < 3) {
			t.Errorf("endpoint %d: %v, %v", i, tool.sends(fabric.Active, i), tool.sends(fabric.Passive, i))
		}
	}
}

// Content that is not what it should be is noticed.
func TestWrongContent(t *testing.T) {
	for _, op := range Ops {
		server, client := perftest.Run(t, perftest.Providers[0], new(Tool), &forgetful{Tool{Op: op, Queues: 1, TxDepth: 4, RxDepth: 4, PostList: 1,
			Work: perf.Work{Sizes: []int{100}, Count: 10, Verify: true, Seed: 1, Inline: -1}}})
		noticed := server.Err
		if op == opRead {
			noticed = client.Err
		}
		if noticed == nil || !strings.Contains(noticed.Error(), "wrong content") || server.Err == nil || client.Err == nil {
			t.Errorf("%s: server: %v, client: %v", op, server.Err, client.Err)
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
