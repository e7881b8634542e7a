package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
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

// A request for several slots that waits behind another one in one lane takes those of another lane that are free, however long it has
// waited.
func TestRoomElsewhere(t *testing.T) {
	quickest := time.Hour
	for try := 0; try < 30 && quickest > 100*time.Millisecond; try++ {
		s := &laneSet{lanes: []*lane{dueLane(t, 0), dueLane(t, 0)}}
		var last slots.Run
		for _, l := range s.lanes {
			for range l.ring.Geometry().Slots / 2 {
				u, err := l.tryClaim(2, false)
				if err != nil {
					t.Fatal(err)
				}
				last = u
			}
		}
		s.lanes[0].claimers.turn <- struct{}{} // another one waits there
		s.turn.Store(1)                        // and it is tried first
		begin := time.Now()
		time.AfterFunc(10*time.Millisecond, func() { s.lanes[1].release(last) })
		l, _, _, err := s.claim(t.Context(), wish{run: 2, since: shm.Nanotime() - int64(1900*time.Millisecond)})
		if err != nil || l != s.lanes[1] {
			t.Fatalf("%v", err)
		}
		quickest = min(quickest, time.Since(begin))
	}
	if quickest > 100*time.Millisecond {
		t.Errorf("it took %v at best to find room that was there after 10 ms", quickest)
	}
}

// A patient claim that has waited for long looks for room also where it goes from lane to lane.
func TestPatientClaimInSeveralLanes(t *testing.T) {
	s := &laneSet{lanes: []*lane{dueLane(t, 0), dueLane(t, 0)}}
	for _, l := range s.lanes {
		l.claimers.turn <- struct{}{} // a longer claim waits in each
		l.claimers.wants(4)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, _, _, err := s.claim(ctx, wish{run: 1, patient: true}); err != nil {
		t.Errorf("with free slots in both: %v", err)
	}
}
