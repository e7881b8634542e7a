package slots_test

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// phase is one of the things that are done with each message.
type phase struct {
	name string
	do   func(i int) bool
}

// timeSteps does each step with n messages, one step after the other, so that the clock
// is read once for n of them, and reports what a message costs in each.
func timeSteps(b *testing.B, n int, steps []phase) {
	b.ReportAllocs()
	took := make([]time.Duration, len(steps))
	for b.Loop() {
		for s := range steps {
			begin := time.Now()
			for i := range n {
				if !steps[s].do(i) {
					b.Fatal(steps[s].name)
				}
			}
			took[s] += time.Since(begin)
		}
	}
	for s := range steps {
		b.ReportMetric(float64(took[s].Nanoseconds())/float64(b.N*n), steps[s].name+"-ns")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
}

// BenchmarkRequestSteps is the life of 64 requests in the requester's ring: what the
// worker does with each, and what the agent does.
func BenchmarkRequestSteps(b *testing.B) {
	const n, owner = 64, 3
	r, _ := newRing(b, small)
	var runs [n]slots.Run
	timeSteps(b, n, []phase{
		{"claim", func(i int) bool {
			u, err := r.Claim(owner, 1)
			runs[i] = u
			return err == nil
		}},
		{"publish", func(i int) bool { return r.Publish(runs[i], owner) }},
		{"take", func(i int) bool { return r.Take(runs[i].Index, r.Word(runs[i].Index)) }},
		{"answer", func(i int) bool { return r.Answer(runs[i].Index, r.Word(runs[i].Index)) }},
		{"acquire", func(i int) bool { return r.Acquire(runs[i], owner) }},
		{"consume", func(i int) bool {
			r.Consume(runs[i])
			return true
		}},
		{"freed", func(int) bool {
			r.Freed(1)
			return true
		}},
	})
}

// BenchmarkAnswerSteps is the life of 64 requests in the mirror: what the agent and the
// process of the service do with each.
func BenchmarkAnswerSteps(b *testing.B) {
	const n, owner = 64, 3
	r, _ := newRing(b, small)
	var runs [n]slots.Run
	ticket := uint64(0)
	timeSteps(b, n, []phase{
		{"deliver", func(i int) bool {
			ticket++
			r.Deliver(i, 1, owner, ticket)
			return true
		}},
		{"pick", func(i int) bool {
			u, ok := r.Pick(i, owner)
			runs[i] = u
			return ok
		}},
		{"finish", func(i int) bool { return r.Finish(runs[i], owner) }},
		{"forget", func(i int) bool {
			r.Forget(i)
			return true
		}},
	})
}

// BenchmarkBells is a mark that finds the agent awake, and the agent's look at all marks.
func BenchmarkBells(b *testing.B) {
	b.ReportAllocs()
	bells := slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize))
	seen := 0
	look := func(uint16) { seen++ }
	for b.Loop() {
		bells.MarkLane(7)
		bells.TakeLanes(look)
	}
	if seen != b.N {
		b.Errorf("%d marks of %d", seen, b.N)
	}
}
