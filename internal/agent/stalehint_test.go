package agent

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/slots"
)

// A worker whose ring of hints is full of those of a core that has died may pick a request by one of them while the next core
// gives it that request, finds no room for the hint, and means to keep the request. It is executed once all the same.
func TestPickedByAHintOfTheLastCore(t *testing.T) {
	if runtime.GOMAXPROCS(0) == 1 {
		t.Skip("with one processor nobody picks in the middle of what an agent does: run it with two or more")
	}
	for range 20 {
		pickedByOldHint(t)
	}
}

func pickedByOldHint(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller, svc := s.addWorker(1), s.addService()
	c := s.send(caller, out.Ring, 10, false, 1)
	h := slots.MakeHint(rigLane, c.u.Index, c.u.Ticket)
	for svc.view.Rings.Down.Stage(h) {
	}
	svc.view.Rings.Down.Publish()
	var picked, stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() && !picked.Load() {
			if _, ok := in.Ring.PickHinted(h, svc.id); ok {
				picked.Store(true)
			}
		}
	}()
	s.a.cycle()
	for deadline := time.Now().Add(time.Minute); !picked.Load(); s.d.DrainQueues() {
		if time.Now().After(deadline) {
			t.Error("it was never picked")
			break
		}
	}
	stop.Store(true)
	<-done
	for ok := true; ok; {
		_, ok = svc.rings.Down.Pop()
	}
	s.d.DrainQueues()
	if _, ok := in.Ring.PickHinted(h, svc.id); ok {
		t.Fatal("it is executed twice")
	}
}
