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

// lent is memory of the core with answers for a worker, which could keep it: the oldest is taken back when there are too many, each when
// the time to read it is over, and all when the worker goes.
type lent struct {
	// turn is held by who answers, from when the answer is made until it is sent.
	turn sync.Mutex

	mu    sync.Mutex
	loans []*loan // oldest first
	over  bool    // the worker has gone
}

// loan is one of them.
type loan struct {
	fd   int // of its own: whoever sends the answer has another
	late *time.Timer
}

// lend notes that the worker is about to get the memfd fd, which stays the caller's. It fails when there is no descriptor to keep it by.
func (l *lent) lend(fd int) error {
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("keeping a descriptor of it: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	one := &loan{fd: kept}
	if l.over {
		one.takeBack()
		return nil // nobody gets it any more
	}
	if len(l.loans) == mostLent {
		l.loans[0].takeBack()
		l.loans = slices.Delete(l.loans, 0, 1)
	}
	l.loans = append(l.loans, one)
	one.late = time.AfterFunc(lentFor, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if at := slices.Index(l.loans, one); at >= 0 {
			one.takeBack()
			l.loans = slices.Delete(l.loans, at, at+1)
		}
	})
	return nil
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
