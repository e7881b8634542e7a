package client

import (
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
		if look, _ := l.claimers.ahead(run, 0); look != 0 {
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

// However many wait behind a claim of more slots, together they look at the full ring no more often than once in lookPace, and
// the first of them after keptFor.
func TestLooksBehindALongClaimArePaced(t *testing.T) {
	var c claimers
	c.wants(4)
	const now, waiters = int64(1e9), 3000
	last := now
	for i := range waiters {
		look, _ := c.ahead(1, now)
		if look < now+keptFor || i > 0 && look < last+lookPace {
			t.Fatalf("look %d is %d ns from now and %d after the one before", i, look-now, look-last)
		}
		if i == 0 && look != now+keptFor {
			t.Errorf("the first looks after %d ns, not keptFor", look-now)
		}
		last = look
	}
	if look, _ := c.ahead(1, last); look != last+keptFor {
		t.Errorf("once all have looked, the next one waits for %d ns", look-last)
	}
}
