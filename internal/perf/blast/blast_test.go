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
				for _, w := range []struct{ tx, rx, list int }{{1, 1, 1}, {7, 3, 2}, {16, 64, 16}, {64, 5, 3}} {
					if !event && (w.list == 1 || p.Name != "tcp") {
						continue // each message takes a turn of the processor
					}
					t.Run(fmt.Sprintf("%s/%s/event=%v/%v", p.Name, op, event, w), func(t *testing.T) {
						const count = 40
						tool := &Tool{Op: op, TxDepth: w.tx, RxDepth: w.rx, PostList: w.list,
							Work: perf.Work{Sizes: sizes, Count: count, Event: event, Verify: true, Seed: 9, Inline: -1}}
						stream(t, p, tool, count)
						if p.Name == "tcp" {
							tool.Verify, tool.Sizes = false, []int{64, 5000}
							stream(t, p, tool, count)
						}
					})
				}
			}
		}
	}
}

func stream(t *testing.T, p perftest.Provider, tool *Tool, count uint64) {
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
		b := row.Bandwidth
		if row.Size != tool.Sizes[i] || row.Iterations < count || row.Iterations > count && tool.Count > 0 || b == nil || row.Latency != nil {
			t.Fatalf("%+v", row)
		}
		if b.Average <= 0 || b.Peak < b.Average || b.MsgRate <= 0 {
			t.Errorf("%+v", b)
		}
	}
}

func TestDuration(t *testing.T) {
	for _, op := range Ops {
		for _, verify := range []bool{false, true} {
			tool := &Tool{Op: op, TxDepth: 16, RxDepth: 12, PostList: 1, Work: perf.Work{Sizes: []int{8, 3000}, Duration: 20 * time.Millisecond, Verify: verify, Inline: 0}}
			stream(t, perftest.Providers[0], tool, 1)
		}
	}
}

func TestCheck(t *testing.T) {
	caps := fabric.Caps{MaxInline: 10, MaxSendDepth: 100, MaxRecvDepth: 50}
	good := func() *Tool {
		return &Tool{Op: opSend, TxDepth: 99, RxDepth: 50, PostList: 99, Work: perf.Work{Sizes: []int{1, perf.LargestSize}, Count: 1, Inline: 10}}
	}
	if err := good().Check(caps); err != nil {
		t.Fatal(err)
	}
	for flag, spoil := range map[string]func(*Tool){
		"--op":          func(t *Tool) { t.Op = "atomic" },
		"--tx-depth":    func(t *Tool) { t.TxDepth = 100 },
		"--rx-depth":    func(t *Tool) { t.RxDepth = 51 },
		"--post-list":   func(t *Tool) { t.PostList = 100 },
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

// Content that is not what it should be is noticed.
func TestWrongContent(t *testing.T) {
	for _, op := range Ops {
		server, client := perftest.Run(t, perftest.Providers[0], new(Tool), &forgetful{Tool{Op: op, TxDepth: 4, RxDepth: 4, PostList: 1,
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
