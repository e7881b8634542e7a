package client

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/slots"
)

// Who waits behind a claim of more slots looks for room by and by, and who waits behind one that wants no more does not.
func TestShortClaimBehindALongOne(t *testing.T) {
	l := dueLane(t, 0)
	l.claimers.turn <- struct{}{} // the test has the turn
	l.claimers.wants(4)
	mine, err := l.turn(t.Context(), slots.ErrFull, 1, 0, math.MaxInt64)
	if mine || err != nil {
		t.Fatalf("behind a longer claim: mine %v, %v", mine, err)
	}
	for _, run := range []int{4, 5} {
		if more, _ := l.claimers.ahead(run); more {
			t.Errorf("a claim of 4 slots is longer than one of %d", run)
		}
	}

	l.claimers.wants(1)
	looked := make(chan error, 1)
	go func() {
		mine, err := l.turn(t.Context(), slots.ErrFull, 1, 0, math.MaxInt64)
		if mine {
			err = errors.New("it has the turn, which another one has")
		}
		looked <- err
	}()
	daemontest.Eventually(t, "a claim that waits", func() error {
		l.claimers.mu.Lock()
		defer l.claimers.mu.Unlock()
		if l.claimers.longer == nil {
			return errors.New("nobody waits")
		}
		return nil
	})
	select {
	case err := <-looked:
		t.Fatalf("it does not wait behind a claim that is as short: %v", err)
	default:
	}
	l.claimers.wants(4) // another one has got the turn
	if err := <-looked; err != nil {
		t.Error(err)
	}
}

// However many wait behind a claim of more slots, together they look at the full ring once in lookPace, and few after keptFor.
// Those who wait no more do not count, whether they have looked or not.
func TestLooksBehindALongClaimArePaced(t *testing.T) {
	l := dueLane(t, 0)
	l.claimers.turn <- struct{}{} // the test has the turn
	l.claimers.wants(4)
	ended, end := context.WithCancel(t.Context())
	end()
	for range 100 {
		if mine, err := l.turn(ended, slots.ErrFull, 1, 0, math.MaxInt64); mine || err == nil {
			t.Fatalf("with an ended context: mine %v, %v", mine, err)
		}
	}
	for waiters := int64(1); waiters <= 3000; waiters++ {
		if wait := l.claimers.lookLater(); wait != max(keptFor, waiters*lookPace) {
			t.Fatalf("%d of them wait for %d ns", waiters, wait)
		}
	}
	for range 3000 {
		l.claimers.looks()
	}
	if wait := l.claimers.lookLater(); wait != keptFor {
		t.Errorf("once all have looked, the next one waits for %d ns", wait)
	}
}
