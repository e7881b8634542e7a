package daemon

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/slots"
)

// A worker that has said that it has read is not taken for slow by a core that has stood still and not heard it yet.
func TestSpillTimeoutOfOneThatWasNotHeard(t *testing.T) {
	const patience = time.Hour
	rig := func(t *testing.T) (s *spiller, now time.Time) {
		s = newSpillerRig(t, config.Limits{SpillBytes: 1 << 20, SpillTimeout: patience}).s
		s.seq = 0
		for range 2 {
			if err := s.send(slots.NewSpill(0)); err != nil {
				t.Fatal(err)
			}
		}
		return s, s.looked
	}
	look := func(t *testing.T, s *spiller, at time.Time, want error) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.look(at); !errors.Is(err, want) {
			t.Fatalf("%v, not %v", err, want)
		}
	}
	t.Run("for a moment", func(t *testing.T) {
		s, now := rig(t)
		late := now.Add(patience + 2*watchStep)
		s.looked = late.Add(-2 * watchStep)
		look(t, s, late, nil)
		look(t, s, late.Add(watchStep/2), nil) // before more is sent
		s.taken(1)
		look(t, s, late.Add(watchStep), nil)
		look(t, s, late.Add(2*watchStep), errSlow) // the other one
	})
	t.Run("for long", func(t *testing.T) {
		s, now := rig(t)
		stood := now.Add(2 * patience)
		look(t, s, stood, nil)
		for at := stood; at.Before(stood.Add(patience)); at = at.Add(watchStep) {
			look(t, s, at, nil)
		}
		stood = stood.Add(3 * patience) // again
		look(t, s, stood, nil)
		s.taken(2)
		look(t, s, stood.Add(watchStep), nil)
	})
	t.Run("and reads nothing", func(t *testing.T) {
		s, now := rig(t)
		look(t, s, now.Add(2*patience), nil)
		for at := now.Add(2 * patience); at.Before(now.Add(3*patience + watchStep)); at = at.Add(watchStep) {
			look(t, s, at, nil)
		}
		look(t, s, now.Add(3*patience+2*watchStep), errSlow)
	})
}
