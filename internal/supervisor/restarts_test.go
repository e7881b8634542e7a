package supervisor

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
)

func TestRestarts(t *testing.T) {
	var r restarts
	now := time.Now()
	for n := range restartCredit {
		if w := r.next(now, true); w != 0 {
			t.Fatalf("restart %d waits %v", n, w)
		}
	}
	var sum time.Duration
	for _, want := range []time.Duration{firstRestart, 2 * firstRestart, 4 * firstRestart} {
		if w := r.next(now, true); w != want {
			t.Errorf("without credit: %v, want %v", w, want)
		}
	}
	for range 100 {
		w := r.next(now.Add(sum/100000), true)
		sum += w
		if w > servedRestart {
			t.Fatalf("waits %v", w)
		}
	}
	if w := r.next(now.Add(creditEvery), true); w != 0 {
		t.Errorf("with new credit: %v", w)
	}
	if w := r.next(now.Add(time.Hour), false); w != firstRestart {
		t.Errorf("after a core that never served: %v", w)
	}
	if w := r.next(now.Add(time.Hour), false); w != 2*firstRestart {
		t.Errorf("after two cores that never served: %v", w)
	}
	for range 10 {
		r.next(now.Add(time.Hour), false)
	}
	if w := r.next(now.Add(time.Hour), false); w != lastRestart {
		t.Errorf("after many cores that never served: %v", w)
	}
}

// A core that is ready, and has ended by the time that anybody looks, has served all the
// same: the next one is not waited for.
func TestFollowACoreThatHasServed(t *testing.T) {
	for range 20 {
		s := &supervisor{cfg: config.Default(), depot: depot.NewStore(depot.Limits{Items: 10, FDs: 10}, func(err error) { t.Error(err) })}
		s.core = &runningCore{link: asCore(t, s, (*depot.Client).Ready), ended: make(chan struct{})}
		close(s.core.ended)
		if err := s.follow(t.Context()); err != nil || !s.core.known {
			t.Fatalf("%v, known to have served: %v", err, s.core.known)
		}
	}
}
