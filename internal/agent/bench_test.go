package agent

import (
	"strconv"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// rounds are requests that go all the way and back, agent and worker in turn, on one
// goroutine.
type rounds struct {
	client, service *rigWorker
	sides           []*side
	from, to        *slots.Ring
	calls           []*rigCall
}

func newRounds(t testing.TB, remote bool) *rounds {
	if !remote {
		s := newSide(t, nil)
		out, _ := s.localLane(t)
		return &rounds{client: s.addWorker(1), service: s.addService(), sides: []*side{s}, from: out.Ring, to: out.Ring}
	}
	a, b, out, in := remoteLane(t)
	return &rounds{client: a.addWorker(1), service: b.addService(), sides: []*side{a, b}, from: out.Ring, to: in.Ring}
}

// last is the side of the service.
func (r *rounds) last() *side { return r.sides[len(r.sides)-1] }

// cycle runs every agent until there is nothing to do.
func (r *rounds) cycle() {
	for work := 1; work > 0; {
		work = 0
		for _, s := range r.sides {
			work += s.a.cycle()
		}
	}
}

// round makes n requests of 32 bytes and takes their answers.
func (r *rounds) round(t testing.TB, n int) {
	r.calls = r.calls[:0]
	for i := range n {
		c := r.sides[0].send(r.client, r.from, 32, false, byte(i))
		if c == nil {
			t.Fatal("no room")
		}
		r.calls = append(r.calls, c)
	}
	r.cycle()
	r.last().work(r.service, r.to, n)
	r.cycle()
	for _, c := range r.calls {
		if !c.answered(t, 0) {
			t.Fatal("no answer")
		}
	}
	for _, ok := r.client.rings.Down.Pop(); ok; _, ok = r.client.rings.Down.Pop() {
	}
}

// BenchmarkCycle is what agents, workers and the fake fabric do for n requests: the
// daemon's share is the larger part. The allocations are the rig's, one for each request,
// and the fake's.
func BenchmarkCycle(b *testing.B) {
	for _, remote := range []bool{false, true} {
		for _, n := range []int{1, 32} {
			b.Run(map[bool]string{false: "local", true: "remote"}[remote]+"/"+strconv.Itoa(n), func(b *testing.B) {
				b.ReportAllocs()
				r := newRounds(b, remote)
				for b.Loop() {
					r.round(b, n)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
			})
		}
	}
}
