package shm

import (
	"runtime"
	"time"
)

// Poll is what a thread does before it sleeps on a futex word, as Mode says. The zero
// Poll does nothing. Not safe for concurrent use.
type Poll struct {
	// Mode is not to be changed while somebody waits, and bounded.
	Mode WaitMode
	// Goroutines lets those of this process run before a WaitAdaptive polls, as Nap does before a short
	// sleep: where no wait comes to a sleep they would have to wait for the runtime to preempt this one. It
	// is not for a goroutine that is locked to its thread.
	Goroutines bool
	// skip is how many more waits go without polling, and penalty how many did
	// after the last one in which it was in vain.
	skip, penalty int
	// Nothing polls before rest, by Nanotime: crowd times as long after a yield that took
	// too long as the yield took.
	rest, crowd int64
}

const (
	// busyPolls bounds one call of Until with WaitBusy: some 10 ms.
	busyPolls = 1 << 15
	// vainPenalty is how many waits go without polling at most because it was in
	// vain: polling that never pays costs a wait no more than this part of the time.
	vainPenalty = 127
	// crowdRest is for how many times as long nothing polls at least after a yield that took
	// too long, and mostCrowdRest at most, where the next polls meet more such: others want the
	// processor, and have it for milliseconds, while a thread that sleeps and is woken
	// gets it at once. One such yield is no crowd: a timer or a thread of the kernel.
	crowdRest, mostCrowdRest = 4, 255
	// longestRest bounds that: whoever stopped the whole process for an hour is no crowd, either.
	longestRest = int64(time.Second)
)

// Until calls ready, over and over, until it returns true or the mode says to sleep. It
// reports whether the caller should look again; if not, it should sleep. It does not
// wait for longer than MaxSpin or, with WaitBusy, some 10 ms at a time, so whoever ends
// the wait need only make ready return true. Between two looks other threads and
// goroutines that want the processor have it.
//
// WaitAdaptive polls only where that pays: not if it would keep the last processor (P)
// from the other goroutines of the process. After a wait in which it was in vain more and
// more waits go without, and after one in which other threads kept the processor for milliseconds
// all do for a multiple of that time.
func (p *Poll) Until(ready func() bool) (again bool) {
	if p.Mode == WaitEvent {
		return false
	}
	return p.until(ready)
}

func (p *Poll) until(ready func() bool) (again bool) {
	if p.skip > 0 && p.Mode != WaitBusy {
		p.skip--
		return false
	}
	// Like a sleeper that the Go scheduler does not know of, this thread keeps its
	// processor (P).
	last := int(rawSleepers.Add(1)) >= runtime.GOMAXPROCS(0)
	defer rawSleepers.Add(-1) // also where ready ends the goroutine
	switch {
	case p.Mode == WaitBusy:
		again = busy(ready, last)
	case !last:
		again = p.spin(ready)
	}
	return again
}

// busy polls. last says that no processor (P) is left to the other goroutines.
func busy(ready func() bool, last bool) bool {
	for range busyPolls {
		if ready() {
			break
		}
		if last {
			// Cheap here, and only here: with a processor (P) to spare it would
			// start another thread to look for work.
			runtime.Gosched()
		}
		Yield()
	}
	return true
}

// spin polls for the time of the mode.
func (p *Poll) spin(ready func() bool) bool {
	now := Nanotime()
	if now < p.rest {
		return false
	}
	if p.Goroutines {
		goyield()
		now = Nanotime()
	}
	for end := now + int64(p.Mode); ; {
		before := now
		Yield() // to those, maybe, that this thread waits for
		now = Nanotime()
		switch took := now - before; {
		case took > crowded:
			p.crowd = min(2*p.crowd+crowdRest, mostCrowdRest)
			p.rest = now + min(p.crowd*took, longestRest)
			return ready()
		case ready():
			p.penalty, p.crowd = p.penalty/2, p.crowd/2
			p.skip = p.penalty
			return true
		case now > end:
			p.penalty = min(2*p.penalty+1, vainPenalty)
			p.skip = p.penalty
			return false
		}
	}
}
