package client

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// A claim that waits for many slots has them kept for it in turns with others, each twice as long as the one before, up to a second.
func TestTurnsOfALongClaim(t *testing.T) {
	const since = 1000
	begin, turn := since+waitsLong, keptFor
	if keptUntil(since, begin-1) != 0 {
		t.Error("others are kept off at once")
	}
	for range 20 {
		for _, at := range []int64{begin, begin + turn/2, begin + turn - 1} {
			if until := keptUntil(since, at); until != begin+turn {
				t.Errorf("after %d: until %d, want %d", at-since, until, begin+turn)
			}
		}
		for _, at := range []int64{begin + turn, begin + 2*turn - 1} {
			if until := keptUntil(since, at); until != 0 {
				t.Errorf("after %d: until %d, and it is the turn of others", at-since, until)
			}
		}
		begin += 2 * turn
		turn = min(2*turn, int64(time.Second))
	}
}

// Who does not wait is told that what is free is kept for another, and not that nothing is free.
func TestWhyKeptSlotsAreNotTaken(t *testing.T) {
	l := dueLane(t, 0)
	now := wish{run: 1, noWait: true}
	l.kept.Store(shm.Nanotime() + int64(time.Hour))
	if _, err := l.claim(t.Context(), now); !errors.Is(err, ErrBackpressure) || !strings.Contains(err.Error(), "kept for a request") {
		t.Errorf("free slots that are kept: %v", err)
	}
	l.kept.Store(0)
	if _, err := l.claim(t.Context(), now); err != nil {
		t.Errorf("free slots: %v", err)
	}
}
