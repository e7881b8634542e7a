package shm

import "runtime"

// Poll is what a thread does before it sleeps on a futex word, as Mode says. The zero
// Poll does nothing. Not safe for concurrent use.
type Poll struct {
	// Mode is not to be changed while somebody waits.
	Mode WaitMode
	// skip is how many more waits go without polling, and penalty how many did
	// after the last one in which it did not pay.
	skip, penalty int
}

const (
	// busyPolls bounds one call of Until with WaitBusy: some 10 ms.
	busyPolls = 1 << 15
	// vainPenalty is how many waits go without polling at most because it was in
	// vain: polling that never pays costs a wait no more than this part of the time.
	vainPenalty = 127
	// crowdPenalty is how many do after one in which a yield took too long: others
	// want the processor, and may have it for milliseconds, while a thread that
	// sleeps and is woken gets it at once.
	crowdPenalty = 1023
)

// Until calls ready, over and over, until it returns true or the mode says to sleep. It
// reports whether the caller should look again; if not, it should sleep. It does not
// wait for longer than MaxSpin or, with WaitBusy, some 10 ms at a time, so whoever ends
// the wait need only make ready return true. Between two looks other threads and
// goroutines that want the processor have it.
//
// WaitAdaptive polls only where that pays: not if it would keep the last processor (P)
// from the other goroutines of the process, and after a wait in which it was in vain,
// or other threads kept the processor for too long, more and more waits go without.
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
	for end := now + int64(p.Mode); ; {
		before := now
		Yield() // to those, maybe, that this thread waits for
		now = Nanotime()
		switch {
		case now > end && now-before > int64(p.Mode)/2:
			p.penalty = crowdPenalty
		case now > end:
			p.penalty = max(p.penalty, min(2*p.penalty+1, vainPenalty))
		case ready():
			p.penalty /= 2
		default:
			continue
		}
		p.skip = p.penalty
		return now <= end || ready()
	}
}
