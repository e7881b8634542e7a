package agent

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/slots"
)

// delayRig is a lane between two nodes that hold groups back, with a clock that is the
// test's.
type delayRig struct {
	t       *testing.T
	a, b    *side
	out     *OutLane
	in      *InLane
	client  *rigWorker
	service *rigWorker
	now     int64
	calls   []*rigCall
}

const rigDelay = 1000

func newDelayRig(t *testing.T) *delayRig {
	r := &delayRig{t: t, now: 1 << 40}
	r.a, r.b, r.out, r.in = remoteLaneOver(t, fabrictest.NewFake())
	for _, s := range []*side{r.a, r.b} {
		s.a.delay.limit, s.a.delay.clock = rigDelay, func() int64 { return r.now }
	}
	r.out.delay, r.in.delay = groupsend.NewRequestDelay(rigDelay, 16), groupsend.NewAnswerDelay(rigDelay, 16)
	r.client, r.service = r.a.addWorker(1), r.b.addService()
	return r
}

// post publishes n requests, and lets the agents take notice.
func (r *delayRig) post(n int) {
	r.t.Helper()
	for range n {
		c := r.a.send(r.client, r.out.Ring, 8, false, 1)
		if c == nil {
			r.t.Fatal("no room")
		}
		r.calls = append(r.calls, c)
	}
	r.cycle()
}

func (r *delayRig) cycle() {
	for range 4 {
		r.a.a.cycle()
		r.b.a.cycle()
	}
}

// sent verifies how many requests and groups of them, and answers and groups of them,
// have been sent altogether.
func (r *delayRig) sent(requests, groups, answers, answerGroups uint64) {
	r.t.Helper()
	p, q := r.a.a.Count, r.b.a.Count
	if p.RequestsSent != requests || p.RequestGroups != groups || q.AnswersSent != answers || q.AnswerGroups != answerGroups {
		r.t.Fatalf("%d requests in %d groups, %d answers in %d, want %d in %d, %d in %d", p.RequestsSent, p.RequestGroups,
			q.AnswersSent, q.AnswerGroups, requests, groups, answers, answerGroups)
	}
}

// answer lets the service handle n requests.
func (r *delayRig) answer(n int) {
	r.b.work(r.service, r.in.Ring, n)
	r.cycle()
}

// crowd makes the lanes expect n callers: each has called once.
func (r *delayRig) crowd(n int) {
	r.post(n)
	r.answer(n)
	r.take(n)
}

// take takes the answers of n calls.
func (r *delayRig) take(n int) {
	r.t.Helper()
	for _, c := range r.calls[:n] {
		if !c.answered(r.t, 0) {
			r.t.Fatal("no answer")
		}
	}
	r.calls = r.calls[n:]
}

func TestGroupsAreHeldBack(t *testing.T) {
	r := newDelayRig(t)
	r.post(1)
	r.sent(1, 1, 0, 0) // alone, at once
	r.answer(1)
	r.take(1)
	r.sent(1, 1, 1, 1)
	r.crowd(4)
	r.sent(5, 2, 5, 2)
	// Some of four: the others may come, and do not.
	r.post(2)
	r.sent(5, 2, 5, 2)
	r.now += rigDelay - 1
	r.cycle()
	r.sent(5, 2, 5, 2)
	r.now++
	r.cycle()
	r.sent(7, 3, 5, 2)
	// An answer waits for the handler of the other.
	r.answer(1)
	r.sent(7, 3, 5, 2)
	r.answer(1)
	r.sent(7, 3, 7, 3)
	r.take(2)
	// Two are all that there are now.
	r.post(1)
	r.sent(7, 3, 7, 3)
	r.post(1)
	r.sent(9, 4, 7, 3)
	// A handler that is slow delays the answer of the other, once.
	r.answer(1)
	r.sent(9, 4, 7, 3)
	r.now += rigDelay
	r.cycle()
	r.sent(9, 4, 8, 4)
	r.answer(1)
	r.take(2)
	r.sent(9, 4, 9, 5)
	if n := r.a.a.Count.GroupsDelayed; n != 2 {
		t.Errorf("requests were held back %d times", n)
	}
}

// A full group goes at once.
func TestFullGroupsAreNotHeldBack(t *testing.T) {
	r := newDelayRig(t)
	r.crowd(40)
	r.post(15)
	before := r.a.a.Count.RequestsSent
	r.post(1)
	if n := r.a.a.Count.RequestsSent - before; n != 16 {
		t.Errorf("%d of 16 requests were sent", n)
	}
}

// Who has no room for a request cannot add it: nothing waits for that.
func TestNothingIsHeldBackForThoseWithoutRoom(t *testing.T) {
	r := newDelayRig(t)
	r.crowd(4)
	r.post(2)
	r.sent(4, 1, 4, 1)
	r.out.Ring.WaitFree(1)
	r.a.bells.MarkLane(rigLane)
	r.cycle()
	r.sent(6, 2, 4, 1)
}

// Nothing is held back for so long that its deadline would be too near, on either way.
func TestDeadlinesEndDelays(t *testing.T) {
	r := newDelayRig(t)
	r.crowd(4)
	lead := int64(time.Millisecond) + rigDelay
	deadline := func(at int64) {
		r.post(1)
		h := slots.Header{}
		c := r.calls[len(r.calls)-1]
		h.Decode(c.ring.Header(c.u))
		h.Deadline = at
		h.Encode(c.ring.Header(c.u))
		r.a.bells.MarkLane(rigLane)
		r.cycle()
	}
	r.post(1)
	r.sent(4, 1, 4, 1)
	deadline(r.now + lead + 100)
	r.sent(4, 1, 4, 1)
	r.now += 99
	r.cycle()
	r.sent(4, 1, 4, 1)
	r.now++
	r.cycle()
	// What is left of its time does not matter: the fake's clock is not the test's.
	if r.a.a.Count.RequestGroups != 2 {
		t.Error("a request waits although its deadline is near")
	}
}

// What is held back when a node drains goes at once, and nothing is held back any more.
func TestDrainEndsDelays(t *testing.T) {
	for name, drain := range map[string]func(r *delayRig){
		"node": func(r *delayRig) { r.a.d.SetDraining() },
		"lane": func(r *delayRig) { r.out.SetDraining(); r.out.Send() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newDelayRig(t)
			r.crowd(4)
			r.post(2)
			r.sent(4, 1, 4, 1)
			drain(r)
			r.cycle()
			r.sent(6, 2, 4, 1)
			r.answer(1)
			r.sent(6, 2, 4, 1)
			r.b.d.SetDraining()
			r.cycle()
			r.sent(6, 2, 5, 2)
			r.answer(1)
			r.sent(6, 2, 6, 3)
		})
	}
}

// What was held back when the connection broke waits for no delay afterwards, and what
// is taken down has its outcome.
func TestDelaysAndBrokenLanes(t *testing.T) {
	r := newDelayRig(t)
	r.crowd(4)
	r.post(2)
	r.out.Suspend()
	r.in.Suspend()
	r.a.bells.MarkLane(rigLane)
	r.now += 5 * rigDelay
	r.cycle()
	r.sent(4, 1, 4, 1)
	p, q := r.a.endpointOf(t, r.out.Ring, 3), r.b.endpointOf(t, r.in.Ring, 4)
	join(t, p, q)
	if err := r.in.Up(q); err != nil {
		t.Fatal(err)
	}
	if err := r.out.Up(p); err != nil {
		t.Fatal(err)
	}
	r.a.bells.MarkLane(rigLane)
	r.cycle()
	r.sent(6, 2, 4, 1)
	r.answer(2)
	r.take(2)
	r.crowd(4)
	r.post(1)
	r.out.Down("the test wants it")
	if c := r.calls[0]; !c.ring.Answered(c.u, c.w.id) {
		t.Error("a request that was held back has no outcome")
	}
	r.now += rigDelay
	r.cycle()
	if len(r.a.d.delayed) != 0 || r.a.d.due != 0 {
		t.Error("a lane that is down is still listed")
	}
}

// Without the setting the timer is never set and nothing is looked at that could be held
// back; holding back costs no memory.
func TestDelaysCostNothing(t *testing.T) {
	s := newSide(t, nil)
	if err := s.a.DelayGroups(0); err != nil {
		t.Fatal(err)
	}
	if s.a.setTimer(); s.a.delay.at != 0 {
		t.Error("a timer for nothing")
	}
	r := newDelayRig(t)
	r.crowd(8)
	round := func() {
		r.post(2)
		r.now += rigDelay
		r.cycle()
		r.answer(1)
		r.now += rigDelay
		r.cycle()
		r.answer(1)
		for _, c := range r.calls {
			c.ring.Consume(c.u)
		}
		r.calls = r.calls[:0]
		// Forgotten: the next ones are expected anew.
		r.post(6)
		r.answer(6)
		for _, c := range r.calls {
			c.ring.Consume(c.u)
		}
		r.calls = r.calls[:0]
	}
	round()
	delayed := r.a.a.Count.GroupsDelayed
	with := testing.AllocsPerRun(50, round)
	if r.a.a.Count.GroupsDelayed == delayed {
		t.Error("nothing was held back")
	}
	r.out.delay, r.in.delay = groupsend.Delay{}, groupsend.Delay{}
	// The rig and its fabric allocate.
	if without := testing.AllocsPerRun(50, round); with > without {
		t.Errorf("%v allocations, %v if nothing is held back", with, without)
	}
}

// An agent that sleeps wakes up when a group is due, without anybody's help.
func TestSleepEndsWhenAGroupIsDue(t *testing.T) {
	r := newDelayRig(t)
	r.a.a.Idle.busy = false
	if err := r.a.a.DelayGroups(2 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	r.now = r.a.a.delay.clock()
	r.out.delay = groupsend.NewRequestDelay(2*time.Millisecond, 16)
	r.crowd(4)
	// On a busy machine some are due before the agent could sleep.
	deadline := time.Now().Add(time.Minute)
	for slept := 0; slept < 3; {
		before := r.a.a.Count.RequestsSent
		r.post(2)
		if r.a.a.Count.RequestsSent == before {
			slept++
		}
		for r.a.a.Count.RequestsSent < before+2 {
			if time.Now().After(deadline) {
				t.Fatal("not sent")
			}
			if r.a.a.cycle() == 0 {
				r.a.a.rest()
			}
		}
		r.cycle()
		r.answer(2)
		r.take(2)
		r.crowd(4)
	}
}
