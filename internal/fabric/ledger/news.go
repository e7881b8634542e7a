package ledger

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// News is what other goroutines have found out and the owner of a completion queue has not looked at
// yet. The zero value works, and wakes nobody.
type News[N any] struct {
	// some says that items is not empty.
	some   atomic.Bool
	poller *poller.Poller
	bell   *shm.Bell // nil: wakes nobody

	mu     sync.Mutex
	closed bool
	items  []N
}

// Watch makes news wake whoever sleeps on p. It is called once, before the first Put.
func (s *News[N]) Watch(p *poller.Poller) error {
	bell, err := shm.NewBell()
	if err != nil {
		return err
	}
	// A new ring makes a new event: the bell need not be read.
	if err := p.Add(bell.FD(), unix.EPOLLIN|unix.EPOLLET, WakeUp{}); err != nil {
		_ = bell.Close() // nothing has rung it
		return err
	}
	s.poller, s.bell = p, bell
	return nil
}

// WakeUp is a poller.Handler for descriptors that only have to wake.
type WakeUp struct{}

// Ready implements poller.Handler: waking up was all.
func (WakeUp) Ready(int, uint32) {}

// Put adds a piece of news. Any goroutine may call it. After Close it does nothing.
func (s *News[N]) Put(n N) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.items = append(s.items, n)
	s.some.Store(true)
	if s.bell != nil {
		s.bell.Ring()
	}
}

// Some reports whether Take would return something.
func (s *News[N]) Some() bool { return s.some.Load() }

// Take returns the news in the order in which they came, and forgets them. It takes no lock if
// there are none.
func (s *News[N]) Take() []N {
	if !s.some.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items := s.items
	s.items = nil
	s.some.Store(false)
	return items
}

// Close ends what Watch has begun, and drops what comes from now on.
func (s *News[N]) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.bell == nil {
		return nil
	}
	err := s.poller.Remove(s.bell.FD())
	if e := s.bell.Close(); err == nil {
		err = e
	}
	return err
}
