//go:build verbs && cgo && linux

package verbs

import (
	"runtime"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// BenchmarkPost is a batch of writes from its post to its completions at both ends of a
// connection of this machine's own device: docs/performance.md says how to run it in the
// lab.
func BenchmarkPost(b *testing.B) {
	for _, c := range []struct {
		name    string
		n, size int
	}{
		{"1x128", 1, 128},
		{"32x128", 32, 128},
		{"1x64KiB", 1, 64 << 10},
	} {
		b.Run(c.name, func(b *testing.B) {
			needDevice(b)
			b.ReportAllocs()
			b.SetBytes(int64(c.n * c.size))
			r := newRig(b, Default(), 1024, false)
			from, to := r.pair(64, 64)
			wrs, recvs, comps := make([]fabric.SendWR, c.n), make([]fabric.RecvWR, 1), make([]fabric.Completion, 64)
			for i := range wrs {
				wrs[i] = writeImm(from, to, c.size, uint32(i))
				wrs[i].Op, wrs[i].Flags = fabric.OpWrite, 0
			}
			wrs[c.n-1].Op, wrs[c.n-1].Flags = fabric.OpWriteImm, fabric.FlagSignaled
			sends, polls := from.ep.Stats(), r.cq[0].Stats().Polls
			for b.Loop() {
				if n, err := to.ep.PostRecv(recvs); n != 1 || err != nil {
					b.Fatal(n, err)
				}
				if n, err := from.ep.PostSend(wrs); n != c.n || err != nil {
					b.Fatal(n, err)
				}
				for side := range r.cq {
					r.one(side, comps)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.n), "ns/message")
			b.ReportMetric(float64(from.ep.Stats().SendCalls-sends.SendCalls)/float64(b.N), "posts/op")
			b.ReportMetric(float64(r.cq[0].Stats().Polls-polls)/float64(b.N), "polls/op")
		})
	}
}

// one polls a queue until it has a completion, which must be a good one.
func (r *rig) one(side int, comps []fabric.Completion) {
	var deadline time.Time
	for {
		n, err := r.cq[side].Poll(comps)
		if err != nil || n > 0 && comps[0].Status != fabric.StatusSuccess {
			r.Fatal(comps[0], err)
		}
		if n > 0 {
			return
		}
		runtime.Gosched()
		if now := time.Now(); deadline.IsZero() {
			deadline = now.Add(patience)
		} else if now.After(deadline) {
			r.Fatal("no completion")
		}
	}
}

// BenchmarkPollNothing is a look at a queue with nothing to report.
func BenchmarkPollNothing(b *testing.B) {
	needDevice(b)
	b.ReportAllocs()
	r := newRig(b, Default(), 1024, false)
	r.pair(16, 16)
	comps := make([]fabric.Completion, 64)
	for b.Loop() {
		if n, err := r.cq[0].Poll(comps); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
