package daemon

import (
	"errors"
	"io"
	"math"
	"net"
	"testing"
	"time"
)

// An estimate that is bad, because one of the sides did not run for a while, is replaced by
// a better one; one that is good enough costs nothing.
func TestClocksAreComparedAgain(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	ready := make(chan *peerMessage, 1)
	go func() {
		defer theirs.Close()
		m, err := answerClocks(theirs, theirs)
		if err != nil {
			t.Error(err)
		}
		ready <- m
	}()
	// The clock is the same at both ends, so the offset is the error.
	const late = int64(time.Hour)
	got, err := refineClock(ours, ours, clockEstimate{offset: late / 2, slack: late})
	if err != nil || got.slack >= late || max(got.offset, -got.offset) > got.slack/2+1 {
		t.Errorf("%+v, %v", got, err)
	}
	good := clockEstimate{offset: 5, slack: int64(clockSlack)}
	if got, err := refineClock(nil, nil, good); err != nil || got != good {
		t.Errorf("%+v, %v", got, err)
	}
	if err := writePeer(ours, &peerMessage{Type: peerReady, Clock: -got.offset}); err != nil {
		t.Fatal(err)
	}
	if m := <-ready; m == nil || m.Type != peerReady || m.Clock != -got.offset {
		t.Errorf("after the questions: %+v", m)
	}
}

// Nobody asks for ever, and nothing else is taken for a clock.
func TestClocksOfStrangePeers(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	asked := make(chan error, 1)
	go func() {
		defer theirs.Close()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		var err error
		for range clockTries + 1 {
			err = errors.Join(err, writePeer(theirs, &peerMessage{Type: peerClock}))
		}
		asked <- err
	}()
	if m, err := answerClocks(ours, ours); err != nil || m.Type != peerClock {
		t.Errorf("after too many questions: %+v, %v", m, err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if _, err := readPeer(there, maxHello); err == nil {
			_ = writePeer(there, &peerMessage{Type: peerPong})
		}
	}()
	if _, err := refineClock(here, here, clockEstimate{slack: int64(time.Hour)}); !errors.Is(err, errFrame) {
		t.Errorf("a pong instead of a clock: %v", err)
	}
}

func TestEstimateClock(t *testing.T) {
	if got := estimateClock(100, 140, 5000); got != (clockEstimate{offset: 120 - 5000, slack: 40}) {
		t.Errorf("%+v", got)
	}
}

// A deadline that no longer fits stays in the future, or in the past, and none becomes "never".
func TestDeadlineByAnotherClock(t *testing.T) {
	for _, c := range []struct{ deadline, by, want int64 }{
		{1000, -300, 700}, {300, -1000, -700}, {300, -300, 1},
		{math.MaxInt64 - 5, 5, math.MaxInt64}, {math.MaxInt64 - 5, 6, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MinInt64, -1, math.MinInt64}, {-5, math.MinInt64, math.MinInt64}, {math.MinInt64, math.MaxInt64, -1},
	} {
		if got := later(c.deadline, c.by); got != c.want {
			t.Errorf("%d by %d: %d, want %d", c.deadline, c.by, got, c.want)
		}
	}
}
