package shm

import "sync/atomic"

// Wakes wakes many sleepers with few system calls: those on two words with one ([FutexWakeTwo]), and, where the kernel
// lets an io_uring do it, up to 64, of whom some may wait for a page of a [Pager]. Fewer calls are
// less work, and more than that on a processor that the sleepers share with whoever wakes them: the kernel
// lets one that is woken run as soon as the call returns, so that of many that are woken one by one
// each takes the processor away once.
//
// The zero Wakes is ready, and does without an io_uring. Not safe for concurrent use.
type Wakes struct {
	sleepers []sleeper
	ring     *wakeRing // nil where there is none
}

// sleeper is whoever sleeps on a word, or waits for a page if there is a pager.
type sleeper struct {
	word  *atomic.Uint32
	pager *Pager
}

// NewWakes returns a Wakes that has an io_uring if the kernel (6.7 or later) and whoever restricts this process
// allow one, and does without otherwise. The caller must Close it.
func NewWakes() *Wakes { return &Wakes{ring: newWakeRing()} }

// Rings reports whether it has an io_uring.
func (w *Wakes) Rings() bool { return w.ring != nil }

// Add has up to WakeMany threads, of any process, that sleep on word woken by the next Flush. Until then word must
// stay where it is.
func (w *Wakes) Add(word *atomic.Uint32) { w.sleepers = append(w.sleepers, sleeper{word: word}) }

// AddPage has the next Flush do what p.Page does. Until then p must not be closed.
func (w *Wakes) AddPage(p *Pager) { w.sleepers = append(w.sleepers, sleeper{pager: p}) }

// Flush wakes those that were added, and returns when all of them have been.
func (w *Wakes) Flush() {
	rest := w.sleepers
	for w.ring != nil && len(rest) > 2 {
		n := min(len(rest), wakeRingSize)
		if _, ok := w.ring.wake(rest[:n]); !ok {
			// Nothing says which of them it has woken; to wake one twice does no harm.
			_ = w.Close()
			break
		}
		rest = rest[n:]
	}
	var first *atomic.Uint32
	for _, s := range rest {
		switch {
		case s.pager != nil:
			s.pager.Page()
		case first == nil:
			first = s.word
		default:
			FutexWakeTwo(first, s.word)
			first = nil
		}
	}
	if first != nil {
		FutexWake(first, WakeMany)
	}
	clear(w.sleepers) // their memory may be unmapped
	w.sleepers = w.sleepers[:0]
}

// Close gives the io_uring back. A Wakes that is closed goes on without.
func (w *Wakes) Close() error {
	if w.ring == nil {
		return nil
	}
	ring := w.ring
	w.ring = nil
	return ring.close()
}
