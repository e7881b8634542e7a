package depot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// Limits bound a Store.
type Limits struct {
	// Items is the most items, and FDs the most descriptors of all items.
	Items, FDs int
}

// Store keeps descriptors, on behalf of one core after the other. Its methods are safe
// for concurrent use.
type Store struct {
	limits Limits
	// report is told of what cannot be kept.
	report func(error)
	backup *Backup // nil without one

	mu    sync.Mutex
	items inOrder
	fds   int
	core  *conn // of the core that runs, or nil
}

// NewStore makes an empty store. report is called with each message of a core that makes
// no sense or goes beyond the limits; it must not call the store. The caller must
// Clear the store at the end.
func NewStore(l Limits, report func(error)) *Store {
	return &Store{limits: l, report: report}
}

// Link is the supervisor's end of the socket to one core.
type Link struct {
	store *Store
	conn  *conn
	ready chan struct{}
}

// Pair makes the socket to a core: theirs is to be handed to it and then closed here,
// and the link to be served.
func (s *Store) Pair() (l *Link, theirs *os.File, err error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, nil, err
	}
	return &Link{store: s, conn: ours, ready: make(chan struct{})}, theirs, nil
}

// Ready is closed when the core has said that it serves.
func (l *Link) Ready() <-chan struct{} { return l.ready }

// Abort ends a link that is not served.
func (l *Link) Abort() { _ = l.conn.close() }

// Serve gives the core everything that is kept and then does what it says, until the
// core is gone and all that it had said is done.
func (l *Link) Serve() {
	s := l.store
	defer l.conn.close()
	if err := s.handAll(l.conn); err != nil {
		return // it is gone
	}
	defer func() {
		s.mu.Lock()
		s.core = nil
		s.mu.Unlock()
	}()
	ready := false
	for {
		m, fds, err := l.conn.recv()
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			s.report(err)
			if m != nil {
				s.forget(m.Key)
			}
		case m.Op == opReady:
			if !ready {
				close(l.ready)
			}
			ready = true
		default:
			if err := s.apply(m, fds); err != nil {
				s.report(err)
			}
		}
	}
}

// handAll sends all items and the end of them.
func (s *Store) handAll(c *conn) error {
	// Nobody else changes the items while no core is served.
	s.mu.Lock()
	items := slices.Collect(s.items.all())
	s.mu.Unlock()
	for _, i := range items {
		if err := c.send(&message{Op: opPut, Key: i.Key, Meta: i.Meta}, i.FDs...); err != nil {
			return err
		}
	}
	if err := c.send(&message{Op: opEnd}); err != nil {
		return err
	}
	s.mu.Lock()
	s.core = c
	s.mu.Unlock()
	return nil
}

// noteTimeout bounds the wait for a core that does not read, so that the supervisor can
// still end it.
const noteTimeout = 100 * time.Millisecond

// Note tells the core that is served something; without one it does nothing. A core that
// does not read is an error soon. Notes come from one goroutine.
func (s *Store) Note(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%w: a note: %w", ErrInvalid, err)
	}
	s.mu.Lock()
	core := s.core
	s.mu.Unlock()
	if core == nil {
		return nil
	}
	if err := core.sock.SetWriteDeadline(time.Now().Add(noteTimeout)); err != nil {
		return fmt.Errorf("depot: a note: %w", err)
	}
	return core.send(&message{Op: opNote, Meta: data})
}

// apply does what a message says. The descriptors are the store's from then on.
func (s *Store) apply(m *message, fds []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.items.get(m.Key)
	switch m.Op {
	case opPut:
		items, n := s.items.len()+1, s.fds+len(fds)
		if old != nil {
			items, n = items-1, n-len(old.FDs)
		}
		if items > s.limits.Items || n > s.limits.FDs {
			shm.CloseFDs(fds)
			if old != nil {
				s.remove(old) // see Client.Put
			}
			return fmt.Errorf("depot: %s is not kept: %d items and %d descriptors, at most %d and %d are (LimitNOFILE of the daemon; see: rdmad doctor)", m.Key, items, n, s.limits.Items, s.limits.FDs)
		}
		if old != nil && n == s.fds && len(fds) == 0 {
			// In one step: a supervisor that dies between two would leave neither.
			old.Meta = m.Meta
			s.backup.update(old)
			break
		}
		if old != nil {
			s.remove(old)
		}
		s.add(&Item{Key: m.Key, Meta: m.Meta, FDs: fds})
	case opMeta:
		if old == nil {
			return fmt.Errorf("%w: metadata of %s, which is not kept", ErrInvalid, m.Key)
		}
		old.Meta = m.Meta
		s.backup.update(old)
	case opDrop:
		if old != nil {
			s.remove(old)
			s.backup.refill()
		}
	default:
		return fmt.Errorf("%w: %s from a core", ErrInvalid, m.Op)
	}
	s.backup.compact(s)
	return nil
}

// forget drops the item of a key whose new descriptors have not come.
func (s *Store) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.items.get(key); old != nil {
		s.remove(old)
		s.backup.refill()
	}
}

// add and remove are called with mu held.
func (s *Store) add(i *Item) {
	s.items.add(i)
	s.fds += len(i.FDs)
	s.backup.put(i)
}

func (s *Store) remove(i *Item) {
	s.items.remove(i.Key)
	s.fds -= len(i.FDs)
	s.backup.drop(i)
	i.Close()
}

// Meta returns the metadata of an item, nil if it is not kept.
func (s *Store) Meta(key string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.items.get(key); i != nil {
		return i.Meta
	}
	return nil
}

// Size returns how many items and descriptors are kept.
func (s *Store) Size() (items, fds int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.items.len(), s.fds
}

// Clear drops everything.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.items.all() {
		s.backup.drop(i)
		i.Close()
	}
	s.items, s.fds = inOrder{}, 0
}
