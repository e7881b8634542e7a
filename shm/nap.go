package shm

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Nap sleeps on a futex word in the way that suits how long the waits of its
// owner have been: behind the Go scheduler's back while they are short, and with
// the scheduler's knowledge once one was long, so that an idle thread does not
// keep its processor (P). The zero Nap is ready. Not safe for concurrent use.
type Nap struct {
	// long: the current wait, or the last one, has lasted. lasting: it has for ParkAfter.
	long, lasting bool
	// brief is how many of the last waits in a row were shorter than unparkBelow.
	brief int
	// since is when the current wait began, 0 between two waits.
	since int64
}

const (
	// RawLimit bounds a sleep that the Go scheduler does not know of. A garbage
	// collection need not wait for it: the runtime's preemption signal, which
	// also comes every 10 ms for the sake of other goroutines, ends the system
	// call. It is not shorter because a timeout that comes before the kernel's
	// next tick (4 ms at 250 Hz) makes the kernel set a hardware timer, which
	// costs several microseconds for each sleep in a virtual machine; see
	// docs/performance.md.
	RawLimit = 20 * time.Millisecond
	// soleLimit is RawLimit where the process has one processor (P): what becomes ready
	// meanwhile, by a timer or by what a descriptor brings, waits for the end of the sleep.
	soleLimit = 5 * time.Millisecond
	// eitherRaw is RawLimit for two words: no signal ends that sleep, which the kernel begins
	// again for what is left of it, so a garbage collection does wait. What takes longer
	// goes on with the scheduler's knowledge.
	eitherRaw = time.Millisecond
	// ParkAfter is how long a wait is worth a thread, if there is a Pages to wait for
	// instead. The runtime's monitor thread looks after 10 ms at a thread that seems busy,
	// and signals it, again and again.
	ParkAfter = 10 * time.Millisecond
	// unparkBelow is how short unparkAfter waits in a row must be for the next to be worth a
	// thread again. It is far less than ParkAfter, and one is not enough: a process that
	// does both in turn has the monitor woken each time, which then looks around dozens of
	// times.
	unparkBelow = int64(2 * time.Millisecond)
	unparkAfter = 4
	// longWait is from when on a wait is long. A sleep that the Go scheduler
	// knows of costs more than it seems: the runtime's monitor thread, once at
	// rest, is woken by the next one and looks around every 20 us for a
	// millisecond. Hundreds of processes that sleep some milliseconds between
	// two answers would spend most of their time on that.
	longWait = int64(100 * time.Millisecond)
)

// rawSleepers counts the threads of this process that sleep behind the Go
// scheduler's back, or poll. Each keeps a processor (P), so one is left to the rest of the
// process where there is more than one.
var rawSleepers atomic.Int32

// maxRawSleepers is how many there may be. It is asked each time: the runtime changes the number of
// processors (P) by itself when the process is moved, or its control group's limit changes, and
// sleepers that kept all that are left would keep timers and descriptors waiting.
func maxRawSleepers() int32 { return int32(max(1, runtime.GOMAXPROCS(0)-1)) }

// monitorRests: the runtime's monitor thread may be at rest, because all processors (P) were
// idle while a thread was parked. What has woken the thread does not wake the monitor.
var monitorRests atomic.Bool

// Sleep sleeps while *word == old, until a FutexWake on it, or for at most limit;
// see FutexWait. It may return early. A wait may take several sleeps; it ends
// when the word has changed.
func (n *Nap) Sleep(word *atomic.Uint32, old uint32, limit time.Duration) {
	n.sleep(word, old, limit, false)
}

// SleepEither is Sleep that also ends when the word other, whose value was was, changes; see
// FutexWaitEither.
func (n *Nap) SleepEither(word *atomic.Uint32, old uint32, other *atomic.Uint32, was uint32, limit time.Duration) {
	if n.since == 0 {
		n.since = Nanotime()
	}
	over := func() bool { return word.Load() != old || other.Load() != was }
	if most, raw := n.raw(min(limit, eitherRaw)); raw {
		futexWaitEitherRaw(word, old, other, was, most)
		rawSleepers.Add(-1)
		limit -= most
	}
	if !over() {
		FutexWaitEither(word, old, other, was, limit)
	}
	n.note(over())
}

// SleepBeside is Sleep where other goroutines have work for which they need a processor, such
// as handlers that are under way: if there is one only, it is left to them.
func (n *Nap) SleepBeside(word *atomic.Uint32, old uint32, limit time.Duration) {
	n.sleep(word, old, limit, sole())
}

// sole reports whether the process has one processor (P).
func sole() bool { return runtime.GOMAXPROCS(0) == 1 }

func (n *Nap) sleep(word *atomic.Uint32, old uint32, limit time.Duration, leave bool) {
	if n.since == 0 {
		n.since = Nanotime()
	}
	if leave {
		FutexWait(word, old, limit)
	} else if most, raw := n.raw(limit); raw {
		FutexWaitRaw(word, old, most)
		rawSleepers.Add(-1)
	} else {
		FutexWait(word, old, limit)
	}
	n.note(word.Load() != old)
}

// note is called after each sleep; over says that the wait has ended.
func (n *Nap) note(over bool) {
	lasted := Nanotime() - n.since
	n.long = lasted > longWait
	if lasted >= int64(ParkAfter) {
		n.lasting, n.brief = true, 0
	}
	if !over {
		return
	}
	n.since = 0
	if n.brief++; lasted >= unparkBelow {
		n.brief = 0
	}
	if n.brief >= unparkAfter {
		n.lasting, n.brief = false, 0
	}
}

// Lasting reports whether the current wait, or one of those before, has taken ParkAfter, and
// since then no four in a row less than 2 ms each: whoever can Park then should, and should
// until then Sleep for no longer than ParkAfter.
func (n *Nap) Lasting() bool { return n.lasting }

// Park is Sleep for which no thread is kept: it waits for a page. It is for waits that last:
// it costs more system calls. The page comes after the word has changed; see Pages.WaitWhile.
func (n *Nap) Park(p *Pages, word *atomic.Uint32, old uint32) error {
	if n.since == 0 {
		n.since = Nanotime()
	}
	if word.Load() != old {
		n.note(true)
		return nil
	}
	monitorRests.Store(true) // soon, for other threads
	err := p.WaitWhile(word, old)
	monitorRests.Store(true) // by now, for this one
	n.note(word.Load() != old)
	return err
}

// raw reports whether a sleep of up to limit is to be one behind the Go scheduler's back, and how
// long it may be: it is while waits are short. rawSleepers is to be decremented after it.
func (n *Nap) raw(limit time.Duration) (most time.Duration, ok bool) {
	if n.long {
		return 0, false
	}
	if rawSleepers.Add(1) > maxRawSleepers() {
		rawSleepers.Add(-1)
		return 0, false
	}
	// This thread may have been the one that waited for all descriptors and timers of the
	// process. Until it does so again, the monitor must see to it that another does: any
	// system call that the scheduler knows of wakes it.
	if monitorRests.Load() && monitorRests.Swap(false) {
		_, _, _ = syscall.Syscall(unix.SYS_GETPID, 0, 0, 0)
	}
	most = RawLimit
	if goroutinesFirst() {
		most = soleLimit
	}
	return min(limit, most), true
}

// goroutinesFirst lets the goroutines run that wait for this processor (P): one that the caller
// has just started would find it kept until a sleep ends. If it is the only one, which it
// reports, so do those that wait for any, to which goyield does not come. The caller must
// not be locked to its thread: another thread would have to take the processor over.
func goroutinesFirst() (only bool) {
	if only = sole(); only {
		runtime.Gosched()
	} else {
		goyield()
	}
	return only
}
