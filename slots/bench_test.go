package slots_test

import (
	"testing"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// cycle is the life of a request as its worker sees it, with the daemon's two
// swaps between.
func cycle(r *slots.Ring, k int) bool {
	u, err := r.Claim(3, k)
	if err != nil || !r.Publish(u, 3) {
		return false
	}
	w := r.Word(u.Index)
	if !r.Take(u.Index, w) || !r.Answer(u.Index, w) || !r.Answered(u, 3) || !r.Acquire(u, 3) {
		return false
	}
	r.Consume(u)
	r.Freed(u.Len)
	return true
}

func TestNoAllocations(t *testing.T) {
	r, _ := newRing(t, small)
	p, c, _ := ends()
	bells := slots.NewBells(shm.AlignedBytes(slots.DomainSegmentSize))
	h := slots.Header{Ticket: 1, Run: 1, Kind: slots.KindRequest}
	b := make([]byte, slots.HeaderSize)
	lanes := 0
	count := func(uint16) { lanes++ }
	for name, f := range map[string]func(){
		"claim, publish, consume": func() { cycle(r, 3) },
		"sweep":                   func() { r.Sweep(only(9), nil) },
		"header": func() {
			h.Encode(b)
			if !h.Decode(b) || h.CheckRequest(small, 1) != nil {
				t.Error("header")
			}
		},
		"hints": func() { p.Push(1); p.Wake(); c.Pop() },
		"bells": func() { bells.MarkLane(3); bells.TakeLanes(count) },
		"responder": func() {
			r.Deliver(1, 1, 2, 3)
			if u, ok := r.Pick(1, 2); ok {
				r.Finish(u, 2)
			}
			r.Forget(1)
		},
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkClaimPublishConsume(b *testing.B) {
	for _, k := range []int{1, 4} {
		b.Run(map[int]string{1: "run1", 4: "run4"}[k], func(b *testing.B) {
			b.ReportAllocs()
			r, _ := newRing(b, small)
			for b.Loop() {
				if !cycle(r, k) {
					b.Fatal("failed")
				}
			}
		})
	}
}

func BenchmarkClaimContended(b *testing.B) {
	b.ReportAllocs()
	r, _ := newRing(b, small)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !cycle(r, 1) {
				b.Error("failed")
				return
			}
		}
	})
}

func BenchmarkHeader(b *testing.B) {
	h := slots.Header{Ticket: 7, Length: 100, Run: 2, Kind: slots.KindRequest, Method: 3, Answer: 64, Trace: 9}
	buf := make([]byte, slots.HeaderSize)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			h.Encode(buf)
		}
	})
	b.Run("decode and check", func(b *testing.B) {
		b.ReportAllocs()
		var d slots.Header
		for b.Loop() {
			if !d.Decode(buf) || d.CheckRequest(small, 2) != nil {
				b.Fatal("bad")
			}
		}
	})
	b.Run("decode and check an answer", func(b *testing.B) {
		b.ReportAllocs()
		answer := slots.Header{Ticket: 7, Length: 64, Run: 2, Kind: slots.KindAnswer}
		answer.Encode(buf)
		var d slots.Header
		for b.Loop() {
			if !d.Decode(buf) || d.CheckAnswer(small, 2, 7) != nil {
				b.Fatal("bad")
			}
		}
	})
}

func BenchmarkHint(b *testing.B) {
	b.ReportAllocs()
	p, c, _ := ends()
	for b.Loop() {
		p.Push(1)
		p.Wake()
		if _, ok := c.Pop(); !ok {
			b.Fatal("nothing there")
		}
	}
}

func BenchmarkSweep(b *testing.B) {
	b.ReportAllocs()
	r, _ := newRing(b, small)
	for b.Loop() {
		r.Sweep(only(9), nil)
	}
}
