package shm

import "time"

// Linger is what a thread does before it sleeps until others have done something that
// may want its very processor. The zero Linger is ready. Not safe for concurrent use.
type Linger struct {
	// Goroutines lets those of this process run first, as Nap does before a short sleep. It is not
	// for a goroutine that is locked to its thread.
	Goroutines bool
	// skip is how many more times nothing is done, and penalty how many it was after the last
	// one in vain.
	skip, penalty int
}

const (
	// lingerMost is how many times a thread yields at most.
	lingerMost = 4
	// OthersRan is how long a Yield takes at least if another thread has had the processor, in
	// nanoseconds.
	OthersRan = int64(time.Microsecond)
	// crowded is how long one takes if very many want it: a thread that sleeps gets it at once
	// when it is woken, and a process that sleeps for long is at rest.
	crowded = int64(time.Millisecond)
	// crowdPenalty is how many calls do nothing at most where yields take so long.
	crowdPenalty = 1023
)

// Until lets threads run that wait for the processor, up to four times, and reports whether
// ready returned true after one of them: a sleep, and being woken from it, takes several
// times as long as coming back from a yield. If nobody waits for the processor it returns at once, and
// where it was in vain more and more calls do nothing, up to 127 in a row, or 1,023 where yields take
// milliseconds. Ready is not called before others have run.
func (l *Linger) Until(ready func() bool) bool {
	if l.skip > 0 {
		l.skip--
		return false
	}
	if l.Goroutines {
		goroutinesFirst()
	}
	came := l.keep(ready)
	if !came && l.penalty < vainPenalty {
		l.penalty = min(2*l.penalty+1, vainPenalty)
	}
	l.skip = l.penalty
	return came
}

// keep yields unless too few processors (P) were left to the others: like a sleeper that the Go
// scheduler does not know of, this thread keeps its own.
func (l *Linger) keep(ready func() bool) bool {
	defer rawSleepers.Add(-1) // also where ready ends the goroutine
	return rawSleepers.Add(1) <= maxRawSleepers() && l.yield(ready)
}

// yield does it, and sets penalty to what it is after a call that was not in vain.
func (l *Linger) yield(ready func() bool) bool {
	for range lingerMost {
		before := Nanotime()
		Yield()
		took := Nanotime() - before
		if took < OthersRan {
			return false
		}
		if took > crowded {
			l.penalty = min(2*l.penalty+1, crowdPenalty)
			return ready()
		}
		if ready() {
			l.penalty = 0
			return true
		}
	}
	return false
}
