package daemon

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// Deadlines in headers are by the requester's clock, and the answering node must know what
// to add to it. The sides of a session find that out in the handshake: one asks for the
// other's clock and reads its own before and after. The answer is good to half of the time
// in between, which is long if one of them does not run for a while; it counts as long as
// the session lasts. So the question is asked again.
const (
	// clockTries bounds how often a side asks, besides the hello.
	clockTries = 8
	// clockSlack is the time between question and answer that is good enough.
	clockSlack = time.Millisecond
)

// clockEstimate is what to add to the peer's clock to get this node's, in nanoseconds, to
// within half of slack.
type clockEstimate struct{ offset, slack int64 }

// estimateClock judges an answer that says the peer's clock; sent and back are this
// node's before the question and after the answer.
func estimateClock(sent, back, peer int64) clockEstimate {
	return clockEstimate{offset: sent + (back-sent)/2 - peer, slack: back - sent}
}

// refineClock asks for the peer's clock until the answer comes quickly, and returns the best
// of all estimates.
func refineClock(w io.Writer, r io.Reader, best clockEstimate) (clockEstimate, error) {
	for range clockTries {
		if best.slack <= int64(clockSlack) {
			break
		}
		sent := shm.Nanotime()
		if err := writePeer(w, &peerMessage{Type: peerClock}); err != nil {
			return best, err
		}
		m, err := readPeer(r, maxHello)
		if err != nil {
			return best, err
		}
		if m.Type != peerClock {
			return best, fmt.Errorf("%w: %q instead of clock", errFrame, printable(string(m.Type)))
		}
		if e := estimateClock(sent, shm.Nanotime(), m.Clock); e.slack < best.slack {
			best = e
		}
	}
	return best, nil
}

// answerClocks tells the peer this node's clock as often as it asks for that, and returns
// what it says then.
func answerClocks(w io.Writer, r io.Reader) (*peerMessage, error) {
	for n := 0; ; n++ {
		m, err := readPeer(r, maxHello)
		if err != nil || m.Type != peerClock || n == clockTries {
			return m, err
		}
		if err := writePeer(w, &peerMessage{Type: peerClock, Clock: shm.Nanotime()}); err != nil {
			return nil, err
		}
	}
}

// later moves a deadline, which is not 0, by the distance of another clock. Both come from others: what
// is no number of nanoseconds afterwards is as far away as one can be.
func later(deadline, by int64) int64 {
	sum := deadline + by
	switch {
	case by > 0 && sum < deadline:
		return math.MaxInt64
	case by < 0 && sum > deadline:
		return math.MinInt64
	case sum == 0:
		return 1 // 0 is never
	}
	return sum
}
