package groupsend_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/slots"
)

// counter takes everything and counts groups, without allocations.
type counter struct {
	groups int
	// requests and answers are what planning them took.
	requests, answers time.Duration
}

func (c *counter) Admit(int, slots.Word, *slots.Header, error) groupsend.Verdict {
	return groupsend.Send
}
func (c *counter) Withdrawn(int)        {}
func (c *counter) Part(int, int)        {}
func (c *counter) Post(groupsend.Group) { c.groups++ }

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
	begin := time.Now()
	if got, more := p.Plan(c, 100); got != n || more {
		t.Fatalf("planned %d of %d, %v", got, n, more)
	}
	c.requests += time.Since(begin)
	groups := c.groups
	c.groups = 0
	for range n {
		a.Add(first.Index, 1, 0)
		r.Free(first.Index, 1)
		first.Index = (first.Index + 1) % r.Geometry().Slots
	}
	begin = time.Now()
	if got, more := a.Plan(c, 100); got != n || more {
		t.Fatalf("planned %d of %d answers, %v, last %+v", got, n, more, last)
	}
	c.answers += time.Since(begin)
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

// BenchmarkPlan times one round of n messages: claim, publish, plan, answer, free; and
// of that the planning of requests and of answers, with two looks at the clock for each.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1, 32, 255} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			r, _ := newRing(b, wide)
			p, a, c := groupsend.NewRequests(r, 255), groupsend.NewAnswers(wide, 255), &counter{}
			for b.Loop() {
				round(b, r, p, a, c, n)
			}
			messages := float64(b.N * n)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/messages, "ns/message")
			b.ReportMetric(float64(c.requests.Nanoseconds())/messages, "requests-ns")
			b.ReportMetric(float64(c.answers.Nanoseconds())/messages, "answers-ns")
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
