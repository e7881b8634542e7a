package shm

import (
	"sync/atomic"
	"time"
)

// Nap sleeps on a futex word in the way that suits how long the sleeps of its
// owner have been: behind the Go scheduler's back while they are short, which
// saves microseconds each, and with the scheduler's knowledge once one was long,
// so that a thread that waits for long does not keep its processor (P) from
// other goroutines. The zero Nap is ready. Not safe for concurrent use.
type Nap struct{ long bool }

const (
	// RawLimit bounds a sleep that the Go scheduler does not know of. A garbage
	// collection need not wait for it: the runtime's preemption signal ends the
	// system call. It is not shorter because a timeout that comes before the
	// kernel's next tick (4 ms at 250 Hz) makes the kernel set a hardware timer,
	// which costs several microseconds for each sleep in a virtual machine; see
	// docs/performance.md.
	RawLimit = 20 * time.Millisecond
	// shortSleep is up to where a sleep counts as short: the time between two
	// answers for each of some hundred busy processes.
	shortSleep = int64(5 * time.Millisecond)
)

// Sleep sleeps while *word == old, until a FutexWake on it, or for at most limit;
// see FutexWait. It may return early, and does so for a sleep of more than
// RawLimit when earlier ones were short.
func (n *Nap) Sleep(word *atomic.Uint32, old uint32, limit time.Duration) {
	start := Nanotime()
	if n.long {
		FutexWait(word, old, limit)
	} else {
		FutexWaitRaw(word, old, min(limit, RawLimit))
	}
	n.long = Nanotime()-start > shortSleep
}
