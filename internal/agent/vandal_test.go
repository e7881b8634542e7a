package agent

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/slots"
)

// A vandal writes while the agent looks, from another thread: everything that is
// checked can change before it is used. Plain data races, so not for the race
// detector.
func TestVandalOnAnotherThread(t *testing.T) {
	if raceEnabled {
		t.Skip("the races are the point")
	}
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service, honest, bad := s.addService(), s.addWorker(11), s.addWorker(4)
	v := &vandal{mem: ringMemory[out.Ring], ring: out.Ring, s: s, own: bad}
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		r := rand.New(rand.NewPCG(9, 9))
		data := make([]byte, 64)
		for !stop.Load() {
			for i := range data {
				data[i] = byte(r.Uint32())
			}
			script := script(data)
			v.act(&script)
			// The headers of slots under way, over and over.
			v.ring.HeaderAt(r.IntN(zone))[r.IntN(slots.HeaderSize)] ^= 1 << r.IntN(8)
		}
	})
	open := map[*rigCall]bool{}
	started := map[*rigCall]int{}
	answered := 0
	step := 0
	for end := time.Now().Add(time.Second); time.Now().Before(end); step++ {
		if c := s.send(honest, out.Ring, step%150, step%9 == 0, byte(step)); c != nil {
			open[c], started[c] = true, step
		}
		s.a.cycle()
		s.work(service, in.Ring, 4)
		s.a.cycle()
		if step%16 == 0 {
			s.a.rescan()
		}
		for c := range open {
			if c.answered(t, zone) {
				answered++
				delete(open, c)
				delete(started, c)
			} else if c.u.Index >= zone && step-started[c] > 1000 {
				t.Fatalf("an honest request in slot %d does not end: %v, answer word %v", c.u.Index, c.ring.Word(c.u.Index), c.ring.AnswerWord(c.u.Index))
			}
		}
		out.check(t)
		in.check(t)
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d steps, %d requests answered, %d protocol errors", step, answered, s.a.Count.ProtocolErrors)
	for _, w := range []*rigWorker{service, honest, bad} {
		s.bury(w)
	}
	settle(s)
	out.idle(t)
	in.idle(t)
}

// An answer that is damaged between the look of the in lane and that of the out
// lane of a local lane takes nobody else of its group with it.
func TestLocalAnswerDamagedLate(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	service, honest := s.addService(), s.addWorker(11)
	calls := []*rigCall{s.send(honest, out.Ring, 10, false, 1), s.send(honest, out.Ring, 10, false, 2), s.send(honest, out.Ring, 10, false, 3)}
	s.a.cycle()
	s.work(service, in.Ring, 10)
	if s.d.collect(service.view) == 0 {
		t.Fatal("nothing collected")
	}
	out.Ring.Header(calls[1].u)[0] ^= 0xff
	s.a.cycle()
	for i, c := range calls {
		if !c.ring.Answered(c.u, honest.id) {
			t.Fatalf("request %d has no outcome", i)
		}
		var h slots.Header
		h.Decode(c.ring.Header(c.u))
		if want := [...]slots.Status{slots.StatusOK, slots.StatusMaybeExecuted, slots.StatusOK}[i]; h.Status != want {
			t.Errorf("request %d: %v, want %v", i, h.Status, want)
		}
		c.ring.Consume(c.u)
	}
	out.idle(t)
	in.idle(t)
	allFree(t, out.Ring, 0)
}
