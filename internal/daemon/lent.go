package daemon

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// mostLent is how many answers in memory of their own a worker may have at a time, and lentFor how long it may take to read one.
	mostLent = 4
	lentFor  = 10 * time.Second
)

// lent is memory of the core with answers for a worker, which could keep it: each is taken back when the worker has read it, or the time
// to do so is over, the oldest when there are too many, and all when the worker goes.
type lent struct {
	// turn is held by who answers, from when the answer is made until it is sent.
	turn sync.Mutex

	mu    sync.Mutex
	loans []*loan // oldest first
	over  bool    // the worker has gone
}

// loan is one of them.
type loan struct {
	seq  uint64 // of the question
	fd   int    // of its own: whoever sends the answer has another
	late *time.Timer
}

// lend notes that the worker is about to get the memfd fd, which stays the caller's, as the answer to the question seq. It fails when
// there is no descriptor to keep it by.
func (l *lent) lend(seq uint64, fd int) error {
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("keeping a descriptor of it: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	one := &loan{seq: seq, fd: kept}
	if l.over {
		one.takeBack()
		return nil // nobody gets it any more
	}
	if len(l.loans) == mostLent {
		l.loans[0].takeBack()
		l.loans = slices.Delete(l.loans, 0, 1)
	}
	l.loans = append(l.loans, one)
	one.late = time.AfterFunc(lentFor, func() { l.drop(func(other *loan) bool { return other == one }) })
	return nil
}

// read takes back what the worker has been given as the answer to the question seq: it says that it has read it.
func (l *lent) read(seq uint64) { l.drop(func(one *loan) bool { return one.seq == seq }) }

// drop takes back those that over says are.
func (l *lent) drop(over func(*loan) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loans = slices.DeleteFunc(l.loans, func(one *loan) bool {
		if !over(one) {
			return false
		}
		one.takeBack()
		return true
	})
}

// end takes all back: the worker goes. One that goes because the core stops may still read what was sent.
func (l *lent) end(stopping bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for _, one := range l.loans {
		if stopping {
			one.close()
		} else {
			one.takeBack()
		}
	}
	l.loans = nil
}

// takeBack frees the memory, whoever has a descriptor or a mapping of it.
func (o *loan) takeBack() {
	_ = unix.Ftruncate(o.fd, 0)
	o.close()
}

func (o *loan) close() {
	if o.late != nil {
		o.late.Stop()
	}
	_ = unix.Close(o.fd)
}
