package depot

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// The names of descriptors in the service manager's store are "KEY#INDEX" for those of
// items, catalogName with a number for catalogs, and these.
const (
	catalogName = "rdmad-catalog#"
	// coreName is that of the pidfd of the core that runs.
	coreName = "rdmad-core#0"
)

// Backup keeps what a Store keeps in the store of descriptors of a service manager too,
// systemd's, so that it survives the supervisor. It is the other end of the protocol of
// sd_pid_notify_with_fds(3) and sd_listen_fds_with_names(3).
type Backup struct {
	sock    int
	catalog *catalog
	report  func(error)
	// most is how many descriptors the manager stores, as far as that is known, stored how many it
	// has been given of items, and names what their names are with a separator each.
	most, stored, names int
	// unkept are the items for which there was no room.
	unkept map[string]bool
	// deaf: the last message waited in vain, and the next one does not.
	deaf atomic.Bool
	// kept are the descriptors that were passed to this process, by name, until they
	// are taken.
	kept map[string]int
}

// OpenBackup returns the backup that the environment offers (NOTIFY_SOCKET), or nil if it
// offers none, and takes over what was passed of an earlier one. The
// variable is unset: it is not for children. report is told of what cannot be kept.
// Call it before other goroutines use the environment.
func OpenBackup(p *Passed, report func(error)) (*Backup, error) {
	kept := p.kept
	address := os.Getenv("NOTIFY_SOCKET")
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return nil, err
	}
	if address == "" {
		closeAll(kept)
		return nil, nil
	}
	sock, err := dialManager(address)
	if err != nil {
		closeAll(kept)
		return nil, fmt.Errorf("depot: NOTIFY_SOCKET: %w", err)
	}
	b := &Backup{sock: sock, report: report, kept: kept, most: math.MaxInt, unkept: make(map[string]bool)}
	if n, err := strconv.Atoi(os.Getenv("FDSTORE")); err == nil && n > 0 { // since systemd 254
		b.most = n - ownDescriptors
	}
	b.awaitCore()
	return b, nil
}

// The manager passes the names of all descriptors in one variable of the environment, which
// Linux bounds by 128 KiB: with more no supervisor would start again. Of what it stores some
// descriptors are the backup's own: catalogs and the core's pidfd.
const (
	maxNames       = 120 << 10
	ownDescriptors = 4
)

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

// coreGrace is how long the core of a supervisor that has died may take to end.
const coreGrace = 10 * time.Second

// awaitCore returns when the core of the supervisor before this one is gone: two must
// not use the same memory.
func (b *Backup) awaitCore() {
	fd, ok := b.kept[coreName]
	if !ok {
		return
	}
	for _, patience := range []time.Duration{coreGrace, coreGrace} {
		for end := time.Now().Add(patience); time.Now().Before(end); {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds())+1)
			if n > 0 || err != nil && err != unix.EINTR {
				return
			}
		}
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
	b.report(errors.New("depot: the last core does not end"))
}

// CoreStarted keeps a supervisor that comes after this one from starting a core while
// the one with the given process id runs, which has just been started.
func (b *Backup) CoreStarted(pid int) {
	if b == nil {
		return
	}
	b.notify("FDSTOREREMOVE=1\nFDNAME=" + coreName)
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		b.report(fmt.Errorf("depot: the core's pidfd: %w", err))
		return
	}
	b.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+coreName, fd)
	_ = unix.Close(fd)
}

func closeAll(kept map[string]int) {
	for _, fd := range kept {
		_ = unix.Close(fd)
	}
}

// Restore puts into an empty store what was passed, and makes the store keep everything
// here from then on. What is not complete, because the supervisor died while it was being
// kept, is left out.
func (b *Backup) Restore(s *Store) error {
	items, generation := b.restored()
	c, err := newCatalog(generation + 1)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.catalog = c
	s.backup = b
	for _, i := range items {
		s.items[i.Key] = i
		s.order = append(s.order, i.Key)
		s.fds += len(i.FDs)
		b.count(i, 1)
		b.record(record{Op: opPut, Key: i.Key, Meta: i.Meta, FDs: len(i.FDs)})
	}
	known := b.commit()
	// Only now are the old catalogs, and what belongs to nothing, of no use.
	for name, fd := range b.kept {
		if known {
			b.notify("FDSTOREREMOVE=1\nFDNAME=" + name)
		}
		_ = unix.Close(fd)
	}
	b.kept = nil
	return nil
}

// restored returns the items of the newest complete catalog with their descriptors, and
// the catalog's generation.
func (b *Backup) restored() (items []*Item, generation int) {
	var best []record
	for name, fd := range b.kept {
		number, isCatalog := strings.CutPrefix(name, catalogName)
		g, err := strconv.Atoi(number)
		if !isCatalog || err != nil {
			continue
		}
		if records, complete := readCatalog(fd); complete && g > generation {
			best, generation = records, g
		}
	}
	live := make(map[string]record)
	var order []string
	for _, r := range best {
		old, known := live[r.Key]
		switch {
		case r.Op == opPut:
			if !known {
				order = append(order, r.Key)
			}
			live[r.Key] = r
		case r.Op == opMeta && known:
			old.Meta = r.Meta
			live[r.Key] = old
		case r.Op == opDrop:
			delete(live, r.Key)
		}
	}
	for _, key := range order {
		r, ok := live[key]
		if !ok {
			continue
		}
		delete(live, key)
		if i := b.takeItem(r); i != nil {
			items = append(items, i)
		}
	}
	return items, generation
}

// takeItem takes the descriptors of an item; nil if one is missing.
func (b *Backup) takeItem(r record) *Item {
	for n := range r.FDs {
		if _, ok := b.kept[fdName(r.Key, n)]; !ok {
			return nil
		}
	}
	i := &Item{Key: r.Key, Meta: r.Meta}
	for n := range r.FDs {
		name := fdName(r.Key, n)
		i.FDs = append(i.FDs, b.kept[name])
		delete(b.kept, name)
	}
	return i
}

func fdName(key string, n int) string { return key + "#" + strconv.Itoa(n) }

// put keeps an item, whose key is not kept. The functions of a nil Backup do nothing;
// the store's mu is held.
func (b *Backup) put(i *Item) {
	if b == nil {
		return
	}
	b.count(i, 1)
	if b.stored > b.most || b.names > maxNames {
		b.report(fmt.Errorf("depot: %s is not kept by the service manager: %d descriptors with names of %d bytes, at most %d (FileDescriptorStoreMax=) and %d", i.Key, b.stored, b.names, b.most, maxNames))
		b.count(i, -1)
		b.unkept[i.Key] = true
		return
	}
	for n, fd := range i.FDs {
		if !b.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+fdName(i.Key, n), fd) {
			b.unkept[i.Key] = true // and has been reported
			b.count(i, -1)
			for n := range n {
				b.notify("FDSTOREREMOVE=1\nFDNAME=" + fdName(i.Key, n))
			}
			return
		}
	}
	// After the descriptors: what is in the catalog is complete.
	b.record(record{Op: opPut, Key: i.Key, Meta: i.Meta, FDs: len(i.FDs)})
}

// count counts the descriptors of an item, with sign -1 those of one that goes.
func (b *Backup) count(i *Item, sign int) {
	b.stored += sign * len(i.FDs)
	for n := range i.FDs {
		b.names += sign * (len(fdName(i.Key, n)) + 1)
	}
}

func (b *Backup) update(i *Item) {
	if b != nil && !b.unkept[i.Key] {
		b.record(record{Op: opMeta, Key: i.Key, Meta: i.Meta})
	}
}

func (b *Backup) drop(i *Item) {
	if b == nil {
		return
	}
	if b.unkept[i.Key] {
		delete(b.unkept, i.Key)
		return
	}
	b.count(i, -1)
	b.record(record{Op: opDrop, Key: i.Key})
	for n := range i.FDs {
		b.notify("FDSTOREREMOVE=1\nFDNAME=" + fdName(i.Key, n))
	}
}

// record appends to the catalog.
func (b *Backup) record(r record) {
	if err := b.catalog.append(&r); err != nil {
		b.report(err)
	}
}

// commit makes the catalog count, once it says everything. False: the manager does not have it.
func (b *Backup) commit() bool {
	b.record(record{Op: opEnd})
	return b.notify("FDSTORE=1\nFDPOLL=0\nFDNAME="+b.catalog.name(), b.catalog.fd)
}

// compact begins a new catalog when the old one is mostly about what was. Called with
// the store's mu held.
func (b *Backup) compact(s *Store) {
	if b == nil || !b.catalog.wasteful() || b.deaf.Load() {
		return
	}
	c, err := newCatalog(b.catalog.generation + 1)
	if err != nil {
		b.report(err)
		return
	}
	old := b.catalog
	b.catalog = c
	for _, key := range s.order {
		if i := s.items[key]; !b.unkept[key] {
			b.record(record{Op: opPut, Key: key, Meta: i.Meta, FDs: len(i.FDs)})
		}
	}
	if !b.commit() {
		// The old one says the same.
		_ = unix.Close(c.fd)
		b.catalog = old
		return
	}
	b.notify("FDSTOREREMOVE=1\nFDNAME=" + old.name())
	_ = unix.Close(old.fd)
}

// Tell tells the service manager something of sd_notify(3), such as "READY=1". A nil Backup
// tells nobody.
func (b *Backup) Tell(text string) {
	if b != nil {
		b.notify(text)
	}
}

// ErrManager is wrapped by the errors about a service manager that does not take what it
// is told.
var ErrManager = errors.New("depot: notify the service manager")

// notifyTimeout bounds the wait for a service manager that does not read: once, not for each
// message, because a core is not started before they are sent.
const notifyTimeout = 5 * time.Second

// notify sends the service manager a message, and reports whether it has it.
func (b *Backup) notify(text string, fds ...int) bool {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	flags, err := unix.MSG_NOSIGNAL, error(unix.EINTR)
	if b.deaf.Load() {
		flags |= unix.MSG_DONTWAIT
	}
	for errors.Is(err, unix.EINTR) {
		err = unix.Sendmsg(b.sock, []byte(text), rights, nil, flags)
	}
	b.deaf.Store(errors.Is(err, unix.EAGAIN))
	if err != nil {
		b.report(fmt.Errorf("%w: %w", ErrManager, err))
	}
	return err == nil
}

// Close ends the backup in good order, after Store.Clear: nothing of it is left with the
// service manager.
func (b *Backup) Close() error {
	if b == nil {
		return nil
	}
	var err error
	b.notify("FDSTOREREMOVE=1\nFDNAME=" + coreName)
	if b.catalog != nil {
		b.notify("FDSTOREREMOVE=1\nFDNAME=" + b.catalog.name())
		err = unix.Close(b.catalog.fd)
	}
	return errors.Join(err, unix.Close(b.sock))
}

// record is an entry of a catalog: what became of an item. opEnd says that everything
// that was kept when the catalog was begun is in front of it.
type record struct {
	Op   op              `json:"op"`
	Key  string          `json:"key,omitempty"`
	Meta json.RawMessage `json:"meta,omitempty"`
	FDs  int             `json:"fds,omitempty"`
}
