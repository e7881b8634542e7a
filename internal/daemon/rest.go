package daemon

import (
	"math/rand/v2"
	"time"
)

const (
	// steady is how long a connection must have lasted to be made anew at once when it has ended.
	steady = time.Second
	// lastRest bounds the wait before one that never lasts that long.
	lastRest = 500 * time.Millisecond
)

// rest is the wait before a connection is made anew that could be made, but did not last. Without it a peer that takes
// every connection and ends it would have this node make them, and write about them, as fast as it can.
type rest struct{ wait time.Duration }

// after returns how long to wait after a connection that has lasted for a time. The wait doubles with each
// connection that was not steady; it has jitter, so that two nodes that end each other's do not meet again.
func (r *rest) after(lasted time.Duration) time.Duration {
	if lasted >= steady {
		r.wait = 0
		return 0
	}
	r.wait = min(max(2*r.wait, firstRetry), lastRest)
	return jitter(r.wait)
}

// jitter returns between half of a wait and all of it.
func jitter(wait time.Duration) time.Duration { return wait/2 + rand.N(wait/2) }
