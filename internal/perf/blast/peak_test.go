package blast

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/perftest"
	"github.com/rdmad/rdmad/internal/perf/report"
)

// A link that always has the same rate has no other peak, also if the process is kept from looking for a while and finds much
// then, as much as may be under way.
func TestPeakAfterPause(t *testing.T) {
	const (
		each  = int64(4 * time.Microsecond) // of a message
		depth = 2 * batch
		count = 5000
	)
	// What came while nobody looked, which fills the queue and no more, takes no time to be looked at.
	p := newPeak(count, 0, 0, 0)
	now, seen := int64(0), uint64(0)
	look := func(waiting uint64) {
		for {
			n := min(waiting, batch)
			seen, waiting = seen+n, waiting-n
			p.see(seen, now, n == batch)
			if n < batch {
				return
			}
		}
	}
	for seen < count {
		now += each
		waiting := uint64(1)
		if seen%500 == 490 {
			now += int64(20 * time.Millisecond)
			waiting += depth
		}
		look(waiting)
	}
	if want := 1 / float64(each); p.best > want*1.02 || p.best < want*0.98 {
		t.Errorf("the best part has %.3f of the only rate", p.best/want)
	}
}

// A run that is too short for parts has no peak.
func TestNoPeak(t *testing.T) {
	const size, count = 64, 3
	tool := &Tool{Op: opWrite, Queues: 1, TxDepth: 4, RxDepth: 4, PostList: 1, Work: perf.Work{Sizes: []int{size}, Count: count, Inline: -1}}
	// On a busy machine it may take longer.
	for end := time.Now().Add(time.Minute); ; {
		server, client := perftest.Run(t, perftest.Providers[0], new(Tool), tool)
		if server.Err != nil || client.Err != nil {
			t.Fatalf("server: %v, client: %v", server.Err, client.Err)
		}
		b := client.Result.(*report.Report).Results[0].Bandwidth
		if took := time.Duration(count / b.MsgRate * float64(time.Microsecond)); took < time.Duration(shortest) {
			if b.Peak != 0 {
				t.Errorf("%+v of a run of %v", b, took)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("no run was short")
		}
	}
}

// What both directions have moved at their best is known only if both had parts, and is at least what they had on average.
func TestPeakOfBothDirections(t *testing.T) {
	for _, c := range []struct{ own, theirs, want float64 }{{0, 0, 0}, {2, 0, 0}, {0, 2, 0}, {2, 3, 5}, {2, 0.5, 3}} {
		d := &side{own: &ending{Sent: 1000, Ns: 1000, Best: c.own}, theirs: &ending{Sent: 1000, Ns: 1000, Best: c.theirs}, served: new(served)}
		if b := d.row(1 << 20).Bandwidth; b.Peak != c.want*1e9 || b.Average != 2e9 {
			t.Errorf("%+v: %+v", c, b)
		}
	}
}
