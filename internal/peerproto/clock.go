package peerproto

import (
	"fmt"
	"io"
	"time"

	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/shm"
)

// Deadlines in headers are by the requester's clock, and the answering node must know what
// to add to it. The sides of a session find that out in the handshake: one asks for the
// other's clock and reads its own before and after. The answer is good to half of the time
// in between, which is long if one of them does not run for a while. So the question is asked again.
//
// The difference does not stay what it was: a clock is slewed, or is behind when its machine has stood
// still. So an answer to a ping says the clock, too, and as long as deadlines come it is asked for now and then.
const (
	// clockTries bounds how often a side asks, besides the hello.
	clockTries = 8
	// clockSlack is the time between question and answer that is good enough.
	clockSlack = time.Millisecond
)

// ClockEstimate is what to add to the peer's clock to get this node's, in nanoseconds, to
// within half of Slack.
type ClockEstimate struct{ Offset, Slack int64 }

// EstimateClock judges an answer that says the peer's clock; sent and back are this
// node's before the question and after the answer.
func EstimateClock(sent, back, peer int64) ClockEstimate {
	return ClockEstimate{Offset: sent + (back-sent)/2 - peer, Slack: back - sent}
}

// Correct returns the offset nearest to an earlier one that is possible by the estimate: a bad estimate changes little of a good
// one.
func (e ClockEstimate) Correct(offset int64) int64 {
	return e.Offset + min(max(offset-e.Offset, -e.Slack/2), e.Slack/2)
}

// RefineClock asks for the peer's clock until the answer comes quickly, and returns the best
// of all estimates.
func RefineClock(w io.Writer, r io.Reader, best ClockEstimate) (ClockEstimate, error) {
	for range clockTries {
		if best.Slack <= int64(clockSlack) {
			break
		}
		sent := shm.Nanotime()
		if err := Write(w, &Message{Type: TypeClock}); err != nil {
			return best, err
		}
		m, err := Read(r, MaxHello)
		if err != nil {
			return best, err
		}
		if m.Type != TypeClock {
			return best, fmt.Errorf("%w: %q instead of clock", ErrFrame, printable.Text(string(m.Type)))
		}
		if e := EstimateClock(sent, shm.Nanotime(), m.Clock); e.Slack < best.Slack {
			best = e
		}
	}
	return best, nil
}

// AnswerClocks tells the peer this node's clock as often as it asks for that, and returns
// what it says then.
func AnswerClocks(w io.Writer, r io.Reader) (*Message, error) {
	for n := 0; ; n++ {
		m, err := Read(r, MaxHello)
		if err != nil || m.Type != TypeClock || n == clockTries {
			return m, err
		}
		if err := Write(w, &Message{Type: TypeClock, Clock: shm.Nanotime()}); err != nil {
			return nil, err
		}
	}
}
