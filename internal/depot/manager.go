package depot

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// manager is the socket to a service manager, with what that has not heard and must hear. Its methods are safe for
// concurrent use.
type manager struct {
	sock   int
	report func(error)
	// deaf: the last message waited in vain, and the next one does not.
	deaf atomic.Bool

	mu sync.Mutex
	// unremoved are the names of descriptors that it was to remove. Stored again before that is done, there
	// would be two of one name.
	unremoved map[string]bool
	// unstored is the name of a descriptor that it must have before it removes those of the names in obsolete; file
	// is that descriptor, the owner's.
	unstored string
	file     int
	obsolete []string
	// unsaid is that the service is ready, with what else belongs to it.
	unsaid string
	// hurry: what is sent with mu held does not wait, because it is sent again later.
	hurry bool
}

// ErrManager is wrapped by the errors about a service manager that does not take what it
// is told.
var ErrManager = errors.New("depot: notify the service manager")

// notifyTimeout bounds the wait for a service manager that does not read: once, not for each
// message, because a core is not started before they are sent.
const notifyTimeout = 5 * time.Second

func newManager(sock int, report func(error)) *manager {
	return &manager{sock: sock, report: report, unremoved: make(map[string]bool)}
}

// dialManager connects a datagram socket, which has no net.Conn because those send no
// descriptors once they are connected.
func dialManager(address string) (int, error) {
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(int64(notifyTimeout))
	err = unix.SetsockoptTimeval(sock, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit)
	if err == nil {
		err = unix.Connect(sock, &unix.SockaddrUnix{Name: address})
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(sock))
	}
	return sock, nil
}

// notify is send with mu held.
func (m *manager) notify(text string, fds ...int) bool { return m.send(m.hurry, text, fds...) }

// send sends the service manager a message, and reports whether it has it.
func (m *manager) send(hurry bool, text string, fds ...int) bool {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	flags, err := unix.MSG_NOSIGNAL, error(unix.EINTR)
	deaf := m.deaf.Load()
	if deaf || hurry {
		flags |= unix.MSG_DONTWAIT
	}
	for errors.Is(err, unix.EINTR) {
		err = unix.Sendmsg(m.sock, []byte(text), rights, nil, flags)
	}
	full := errors.Is(err, unix.EAGAIN)
	switch {
	case !hurry:
		m.deaf.Store(full)
	case full && !deaf:
		return false // one that has much to read is not deaf
	}
	if err != nil {
		m.report(fmt.Errorf("%w: %w", ErrManager, err))
	}
	return err == nil
}

// store has a descriptor stored under a name that no other has, and reports whether it is. What storeFirst has not done yet
// comes before: its obsolete names may be this one, and what the manager has been told before would be about another.
func (m *manager) store(name string, fd int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.storeUnstored(); m.unstored != "" {
		return false
	}
	return m.storeLocked(name, fd)
}

// storeItem is store for all descriptors of an item, or none.
func (m *manager) storeItem(i *Item, hurry bool) bool {
	if len(i.FDs) == 0 {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hurry = hurry
	defer func() { m.hurry = false }()
	if m.storeUnstored(); m.unstored != "" {
		return false
	}
	for n, fd := range i.FDs {
		if !m.storeLocked(fdName(i.Key, n), fd) {
			for n := range n {
				m.removeLocked(fdName(i.Key, n))
			}
			return false
		}
	}
	return true
}

// removeItem has what storeItem has stored forgotten.
func (m *manager) removeItem(i *Item, hurry bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hurry = hurry
	defer func() { m.hurry = false }()
	for n := range i.FDs {
		m.removeLocked(fdName(i.Key, n))
	}
}

// storeAtOnce is store for a name that is not obsolete and belongs to nothing else.
func (m *manager) storeAtOnce(name string, fd int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.storeLocked(name, fd)
}

func (m *manager) storeLocked(name string, fd int) bool {
	if m.unremoved[name] && !m.removeLocked(name) {
		return false
	}
	return m.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, fd)
}

// storeFirst has a descriptor stored and then others removed, if need be later. Until it is removed the descriptor stays
// open.
func (m *manager) storeFirst(name string, fd int, obsolete []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unstored, m.file, m.obsolete = name, fd, obsolete
	m.storeUnstored()
}

func (m *manager) storeUnstored() {
	if m.unstored == "" || !m.storeLocked(m.unstored, m.file) {
		return
	}
	for _, name := range m.obsolete {
		m.removeLocked(name)
	}
	m.unstored, m.obsolete = "", nil
}

// remove has all descriptors of a name removed, if need be later.
func (m *manager) remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name == m.unstored {
		// What it was to replace says what was, and nothing of that may be adopted any more.
		m.unstored = ""
		for _, old := range m.obsolete {
			m.removeLocked(old)
		}
		m.obsolete = nil
		return
	}
	m.removeLocked(name)
}

func (m *manager) removeLocked(name string) bool {
	if !m.notify("FDSTOREREMOVE=1\nFDNAME=" + name) {
		m.unremoved[name] = true
		return false
	}
	delete(m.unremoved, name)
	return true
}

// tell says something. That the service is ready is said again by heed if it was not heard.
func (m *manager) tell(text string) {
	heard := m.send(false, text)
	ready := strings.HasPrefix(text, "READY=1")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ready && !heard:
		m.unsaid = text
	case ready || strings.HasPrefix(text, "STOPPING=1"):
		m.unsaid = ""
	}
}

// owes reports whether there is something for heed to do.
func (m *manager) owes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unsaid != "" || m.unstored != "" || len(m.unremoved) > 0
}

// heed tries once more what was not heard, until something is not heard again, and reports whether all was.
func (m *manager) heed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hurry = true
	defer func() { m.hurry = false }()
	if m.unsaid != "" {
		if !m.notify(m.unsaid) {
			return false
		}
		m.unsaid = ""
	}
	if m.storeUnstored(); m.unstored != "" {
		return false
	}
	for _, name := range slices.Collect(maps.Keys(m.unremoved)) {
		if !m.removeLocked(name) {
			return false
		}
	}
	return true
}
