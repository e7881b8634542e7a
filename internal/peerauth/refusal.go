package peerauth

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/turnstile"
)

// Refusal is why a connection of a peer is not wanted, in words that stay the same from one attempt to the next.
type Refusal struct {
	// Reason is a word; see status.Refusal.
	Reason string
	// Came is what there was, Expected what should have been, and Remedy what to do.
	Came, Expected, Remedy string
	Err                    error // the cause, if there is one
}

// Error says everything in one line.
func (r *Refusal) Error() string {
	return fmt.Sprintf("%s; expected %s; what to do: %s", r.Came, r.Expected, r.Remedy)
}

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// ErrTooOften refuses a host that makes one connection in vain after the other.
var ErrTooOften = &Refusal{Reason: "too-often", Came: "connection after connection that came to nothing",
	Expected: fmt.Sprintf("at most %d at once and %d a second", turnstile.Burst, turnstile.PerSecond), Remedy: "see what that host runs"}
