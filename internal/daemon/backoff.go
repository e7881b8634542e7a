package daemon

import (
	"math/rand/v2"
	"time"
)

const (
	// steady is how long a connection must have lasted to be made anew at once when it has ended.
	steady = time.Second
	// longestBackoff bounds the wait before one that never lasts that long.
	longestBackoff = 500 * time.Millisecond
)

// backoff is the wait before a connection is made anew that could be made, but did not last. Without it a peer that takes
// every connection and ends it would have this node make them, and write about them, as fast as it can.
type backoff struct{ wait time.Duration }

// after returns how long to wait after a connection that has lasted for a time. The wait doubles with each
// connection that was not steady; it has jitter, so that two nodes that end each other's do not meet again.
func (b *backoff) after(lasted time.Duration) time.Duration {
	if lasted >= steady {
		b.wait = 0
		return 0
	}
	b.wait = min(max(2*b.wait, firstRetry), longestBackoff)
	return jitter(b.wait)
}

// jitter returns between half of a wait and all of it.
func jitter(wait time.Duration) time.Duration { return wait/2 + rand.N(wait/2) }
