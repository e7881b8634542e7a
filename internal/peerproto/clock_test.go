package peerproto

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
	ready := make(chan *Message, 1)
	go func() {
		defer theirs.Close()
		m, err := AnswerClocks(theirs, theirs)
		if err != nil {
			t.Error(err)
		}
		ready <- m
	}()
	// The clock is the same at both ends, so the offset is the error.
	const late = int64(time.Hour)
	got, err := RefineClock(ours, ours, ClockEstimate{Offset: late / 2, Slack: late})
	if err != nil || got.Slack >= late || max(got.Offset, -got.Offset) > got.Slack/2+1 {
		t.Errorf("%+v, %v", got, err)
	}
	good := ClockEstimate{Offset: 5, Slack: int64(clockSlack)}
	if got, err := RefineClock(nil, nil, good); err != nil || got != good {
		t.Errorf("%+v, %v", got, err)
	}
	if err := Write(ours, &Message{Type: TypeReady, Clock: -got.Offset}); err != nil {
		t.Fatal(err)
	}
	if m := <-ready; m == nil || m.Type != TypeReady || m.Clock != -got.Offset {
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
			err = errors.Join(err, Write(theirs, &Message{Type: TypeClock}))
		}
		asked <- err
	}()
	if m, err := AnswerClocks(ours, ours); err != nil || m.Type != TypeClock {
		t.Errorf("after too many questions: %+v, %v", m, err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if _, err := Read(there, MaxHello); err == nil {
			_ = Write(there, &Message{Type: TypePong})
		}
	}()
	if _, err := RefineClock(here, here, ClockEstimate{Slack: int64(time.Hour)}); !errors.Is(err, ErrFrame) {
		t.Errorf("a pong instead of a clock: %v", err)
	}
}

func TestEstimateClock(t *testing.T) {
	if got := EstimateClock(100, 140, 5000); got != (ClockEstimate{Offset: 120 - 5000, Slack: 40}) {
		t.Errorf("%+v", got)
	}
}

// What was known before stays as far as it is possible still.
func TestCorrectClock(t *testing.T) {
	e := ClockEstimate{Offset: 1000, Slack: 40}
	for before, want := range map[int64]int64{1000: 1000, 990: 990, 1020: 1020, 979: 980, 1021: 1020, -5000: 980, math.MaxInt64: 1020} {
		if got := e.Correct(before); got != want {
			t.Errorf("%d becomes %d, want %d", before, got, want)
		}
	}
}
