package groupsend_test

import (
	"testing"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/slots"
)

// counter takes everything and counts groups, without allocations.
type counter struct{ groups int }

func (c *counter) Admit(int, slots.Word, *slots.Header, error) bool { return true }
func (c *counter) Withdrawn(int)                                    {}
func (c *counter) Part(int, int)                                    {}
func (c *counter) Post(groupsend.Group)                             { c.groups++ }

// round publishes n messages, plans them, and frees them through the planner of
// answers. It returns how many groups there were.
func round(t testing.TB, r *slots.Ring, p *groupsend.Requests, a *groupsend.Answers, c *counter, n int) int {
	var first, last slots.Run
	for i := range n {
		u, err := r.Claim(owner, 1)
		if err != nil {
			t.Fatal(err)
		}
		h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest}
		h.Encode(r.Header(u))
		r.Publish(u, owner)
		if i == 0 {
			first = u
		}
		last = u
	}
	if got, more := p.Plan(c, 100); got != n || more {
		t.Fatalf("planned %d of %d, %v", got, n, more)
	}
	groups := c.groups
	c.groups = 0
	for range n {
		a.Add(first.Index, 1, 0)
		r.Free(first.Index, 1)
		first.Index = (first.Index + 1) % r.Geometry().Slots
	}
	if got, more := a.Plan(c, 100); got != n || more {
		t.Fatalf("planned %d of %d answers, %v, last %+v", got, n, more, last)
	}
	return groups
}

func TestNoAllocations(t *testing.T) {
	r, _ := newRing(t, wide)
	p, a, c := groupsend.NewRequests(r, 255), groupsend.NewAnswers(wide, 255), &counter{}
	for _, n := range []int{1, 32, 512} {
		round(t, r, p, a, c, n)
		if got := testing.AllocsPerRun(100, func() { round(t, r, p, a, c, n) }); got != 0 {
			t.Errorf("%d messages: %v allocations", n, got)
		}
	}
}

// BenchmarkPlan times one round of n messages: claim, publish, plan, answer, free.
func BenchmarkPlan(b *testing.B) {
	for name, n := range map[string]int{"1": 1, "32": 32, "255": 255} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			r, _ := newRing(b, wide)
			p, a, c := groupsend.NewRequests(r, 255), groupsend.NewAnswers(wide, 255), &counter{}
			for b.Loop() {
				round(b, r, p, a, c, n)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
		})
	}
}

// BenchmarkPlanNothing is the cost of a look at a ring with nothing new in it.
func BenchmarkPlanNothing(b *testing.B) {
	b.ReportAllocs()
	r, _ := newRing(b, wide)
	p, c := groupsend.NewRequests(r, 255), &counter{}
	for b.Loop() {
		p.Plan(c, 100)
	}
}

// BenchmarkRescan is the cost of a look at every slot of a ring.
func BenchmarkRescan(b *testing.B) {
	b.ReportAllocs()
	r, _ := newRing(b, wide)
	p, c := groupsend.NewRequests(r, 255), &counter{}
	for b.Loop() {
		p.Rescan()
		p.Plan(c, 100)
	}
}
