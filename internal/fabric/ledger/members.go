package ledger

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Members are the endpoints of a completion queue that are not closed, by serial number. Use
// NewMembers.
type Members[E any] struct {
	// all is never changed, only replaced: the owner reads it without a lock.
	all atomic.Pointer[map[uint32]E]

	mu     sync.Mutex
	closed bool
	serial uint32
}

// NewMembers returns a set without members.
func NewMembers[E any]() *Members[E] {
	m := &Members[E]{}
	m.all.Store(&map[uint32]E{})
	return m
}

// Admit gives a new member a serial number that no other has, and hands it to named before anybody
// can find the member by it. It is fabric.ErrClosed after Close.
func (m *Members[E]) Admit(e E, named func(serial uint32)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fabric.ErrClosed
	}
	all := maps.Clone(*m.all.Load())
	for taken := true; taken; {
		m.serial++
		_, taken = all[m.serial]
	}
	named(m.serial)
	all[m.serial] = e
	m.all.Store(&all)
	return nil
}

// Forget removes a member, whose number may be given to another then.
func (m *Members[E]) Forget(serial uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.all.Load())
	delete(all, serial)
	m.all.Store(&all)
}

// All returns the members of this moment. It must not be changed.
func (m *Members[E]) All() map[uint32]E { return *m.all.Load() }

// Close keeps new members out. Those that there are stay.
func (m *Members[E]) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}
