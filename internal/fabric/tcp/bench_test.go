package tcp

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// BenchmarkPost is a batch of writes from its post to its completions at both ends, over
// the loopback interface, both ends in turn on one goroutine: what the provider and the
// kernel cost, and no wake-up of another thread.
func BenchmarkPost(b *testing.B) {
	for _, c := range []struct {
		name    string
		n, size int
		overTLS bool
	}{
		{name: "1x128", n: 1, size: 128},
		{name: "32x128", n: 32, size: 128},
		{name: "1x64KiB", n: 1, size: 64 << 10},
		{name: "TLS 1x128", n: 1, size: 128, overTLS: true},
		{name: "TLS 32x128", n: 32, size: 128, overTLS: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(c.n * c.size))
			cfg := Config{}
			if c.overTLS {
				cfg.Security = guardOf(b, "test")
			}
			p := newPairWith(b, cfg)
			wrs, recv, comps := p.batch(c.n, c.size), make([]fabric.RecvWR, 1), make([]fabric.Completion, 8)
			p.round(b, wrs, recv, comps)
			out, in := p.ep[0].Stats(), p.ep[1].Stats()
			for b.Loop() {
				p.round(b, wrs, recv, comps)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.n), "ns/message")
			b.ReportMetric(float64(p.ep[0].Stats().Writes-out.Writes)/float64(b.N), "writes/op")
			b.ReportMetric(float64(p.ep[1].Stats().Reads-in.Reads)/float64(b.N), "reads/op")
		})
	}
}

// BenchmarkPollNothing is a look at a queue with a connection and nothing to report.
func BenchmarkPollNothing(b *testing.B) {
	b.ReportAllocs()
	p := newPair(b)
	comps := make([]fabric.Completion, 256)
	if _, err := p.pol[0].Wait(time.Millisecond); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if n, err := p.cq[0].Poll(comps); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
