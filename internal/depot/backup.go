package depot

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The names of descriptors in the service manager's store are "KEY#INDEX" for those of
// items, catalogName with a number for catalogs, and these.
const (
	catalogName = "rdmad-catalog#"
	// coreName, with its process id, is that of the pidfd of a core that may run.
	coreName = "rdmad-core#"
)

// Backup keeps what a Store keeps in the store of descriptors of a service manager too,
// systemd's, so that it survives the supervisor. It is the other end of the protocol of
// sd_pid_notify_with_fds(3) and sd_listen_fds_with_names(3).
type Backup struct {
	*manager
	// source is the store that it is the backup of, after Restore.
	source  *Store
	catalog *catalog
	// core is the name of the pidfd of the core that was started last; "" before the first.
	core string
	// most is how many descriptors the manager stores, as far as that is known, stored how many it
	// has been given of items, and names what their names are with a separator each.
	most, stored, names int
	// unkept are the items for which there was no room, or which the manager has not taken, and due is that some
	// of them may be kept by now.
	unkept map[string]bool
	due    bool
	// kept are the descriptors that were passed to this process, by name, until they
	// are taken.
	kept map[string]int
}

// OpenBackup returns the backup that the environment offers (NOTIFY_SOCKET), or nil if it
// offers none, and takes over what was passed of an earlier one. The
// variable is unset: it is not for children. report is told of what cannot be kept, and
// of a manager that is not there: without one that has passed anything there is no backup then.
// Call it before other goroutines use the environment.
func OpenBackup(p *Passed, report func(error)) (*Backup, error) {
	kept, cores := p.kept, p.cores
	address := os.Getenv("NOTIFY_SOCKET")
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return nil, err
	}
	defer closeList(cores)
	if address == "" {
		closeAll(kept)
		return nil, nil
	}
	sock, err := dialManager(address)
	if err != nil {
		closeAll(kept)
		err = fmt.Errorf("%w: NOTIFY_SOCKET=%s: %w", ErrManager, address, err)
		gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
		if gone && len(p.Sockets)+len(kept)+len(cores) == 0 {
			report(err) // the variable is left over from somebody else's service
			return nil, nil
		}
		return nil, fmt.Errorf("%w: start the service anew with its manager (systemctl restart rdmad), or unset NOTIFY_SOCKET if there is none", err)
	}
	b := &Backup{manager: newManager(sock, report), kept: kept, most: math.MaxInt, unkept: make(map[string]bool)}
	if n, err := strconv.Atoi(os.Getenv("FDSTORE")); err == nil && n > 0 { // since systemd 254
		b.most = n - ownDescriptors
	}
	for _, core := range cores {
		if !ended(core) {
			report(errors.New("depot: the last core does not end"))
		}
	}
	return b, nil
}

// The manager passes the names of all descriptors in one variable of the environment, which
// Linux bounds by 128 KiB: with more no supervisor would start again. Of what it stores some
// descriptors are the backup's own: catalogs and the core's pidfd.
const (
	maxNames       = 120 << 10
	ownDescriptors = 4
)

// coreGrace is how long the core of a supervisor that has died may take to end.
const coreGrace = 10 * time.Second

// ended waits for the end of the process of a pidfd, a core of the supervisor before this one, which is killed if that takes
// long: two must not use the same memory.
func ended(pidfd int) bool {
	for range 2 {
		for end := time.Now().Add(coreGrace); time.Now().Before(end); {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds())+1)
			if n > 0 || err != nil && err != unix.EINTR {
				return true
			}
		}
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	}
	return false
}

// CoreStarted keeps a supervisor that comes after this one from starting a core while
// the one with the given process id runs, which has just been started.
func (b *Backup) CoreStarted(pid int) {
	if b == nil {
		return
	}
	before := b.core
	b.core = coreName + strconv.Itoa(pid)
	if before != "" {
		b.remove(before)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		b.report(fmt.Errorf("depot: the core's pidfd: %w", err))
		return
	}
	b.storeAtOnce(b.core, fd)
	_ = unix.Close(fd)
}

func closeAll(kept map[string]int) { closeList(slices.Collect(maps.Values(kept))) }

func closeList(fds []int) {
	for _, fd := range fds {
		if fd != ambiguous {
			_ = unix.Close(fd)
		}
	}
}

// Restore puts into an empty store what was passed, and makes the store keep everything
// here from then on. What is not complete, because the supervisor died while it was being
// kept, is left out. After an error the service manager has what it had.
func (b *Backup) Restore(s *Store) error {
	items, generation := b.restored()
	records := make([]record, len(items))
	for k, i := range items {
		records[k] = putOf(i)
	}
	c, err := newCatalogOf(generation+1, records)
	if err != nil {
		for _, i := range items {
			i.Close()
		}
		closeAll(b.kept)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.catalog = c
	b.source, s.backup = s, b
	for _, i := range items {
		s.items.add(i)
		s.fds += len(i.FDs)
		b.count(i, 1)
	}
	// Only when the manager has the new catalog are the old ones, and what belongs to nothing, of no use.
	b.storeFirst(c.name(), c.fd, slices.Collect(maps.Keys(b.kept)))
	closeAll(b.kept)
	b.kept = nil
	return nil
}

// putOf is the record of an item.
func putOf(i *Item) record {
	return record{Op: opPut, Key: i.Key, Meta: i.Meta, FDs: len(i.FDs)}
}

// restored returns the items of the newest complete catalog with their descriptors, and
// the highest generation of any.
func (b *Backup) restored() (items []*Item, generation int) {
	var best []record
	newest := 0
	for name, fd := range b.kept {
		number, isCatalog := strings.CutPrefix(name, catalogName)
		g, err := strconv.Atoi(number)
		if !isCatalog || err != nil {
			continue
		}
		generation = max(generation, g)
		if records, complete := readCatalog(fd); complete && g > newest {
			best, newest = records, g
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

// takeItem takes the descriptors of an item; nil if one is missing or not known for sure.
func (b *Backup) takeItem(r record) *Item {
	for n := range r.FDs {
		switch fd, ok := b.kept[fdName(r.Key, n)]; {
		case !ok:
			return nil
		case fd == ambiguous:
			b.report(fmt.Errorf("depot: %s is lost: the service manager has passed several descriptors of the name %s", r.Key, fdName(r.Key, n)))
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

// These are why an item is not kept.
var (
	errFull     = errors.New("no room")
	errMissed   = errors.New("it did not take it, and is told again")
	errUnlisted = errors.New("it is not in the catalog, and is told again")
)

// put keeps an item, whose key is not kept. The functions of a nil Backup do nothing;
// the store's mu is held.
func (b *Backup) put(i *Item) {
	if b == nil {
		return
	}
	if err := b.keep(i, false); err != nil {
		b.report(fmt.Errorf("depot: %s is not kept by the service manager: %w", i.Key, err))
		b.unkept[i.Key] = true
		b.due = b.due || !errors.Is(err, errFull)
	}
}

// keep has the manager store an item, without waiting for it if there is hurry.
func (b *Backup) keep(i *Item, hurry bool) (err error) {
	b.count(i, 1)
	switch {
	case b.stored > b.most || b.names > maxNames:
		err = fmt.Errorf("%w: %d descriptors with names of %d bytes, at most %d (FileDescriptorStoreMax=) and %d", errFull, b.stored, b.names, b.most, maxNames)
	case !b.storeItem(i, hurry):
		err = errMissed
	default:
		// After the descriptors: what is in the catalog is complete.
		r := putOf(i)
		if err = b.catalog.append(&r); err == nil {
			return nil
		}
		// Without it the descriptors are those of nothing.
		b.removeItem(i, hurry)
		err = fmt.Errorf("%w: %w", errUnlisted, err)
	}
	b.count(i, -1)
	return err
}

// againAtOnce bounds how many items are put again at a time: the store is locked meanwhile, and the
// manager has other services to listen to.
const againAtOnce = 100

// again puts the items that are not kept, the oldest first, until one cannot be, and reports whether the manager took them.
func (b *Backup) again() bool {
	if !b.due {
		return true
	}
	n, unlisted := 0, false
	for i := range b.source.items.all() {
		if len(b.unkept) == 0 {
			break
		}
		if !b.unkept[i.Key] {
			continue
		}
		if n++; n > againAtOnce {
			return true
		}
		err := b.keep(i, true)
		if errors.Is(err, errFull) {
			break // until something is dropped
		}
		if errors.Is(err, errUnlisted) { // what comes next may take less
			unlisted = true
			continue
		}
		if err != nil {
			return false
		}
		delete(b.unkept, i.Key)
	}
	b.due = unlisted
	return true
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
		b.due = len(b.unkept) > 0 // those behind it may need less
		return
	}
	b.count(i, -1)
	b.record(record{Op: opDrop, Key: i.Key})
	for n := range i.FDs {
		b.remove(fdName(i.Key, n))
	}
	b.due = b.due || len(b.unkept) > 0 && len(i.FDs) > 0
}

// refill puts again what there is room for since something was dropped, if the manager has heard of that: else Heed does.
func (b *Backup) refill() {
	if b != nil && !b.deaf.Load() && !b.owes() {
		b.again()
	}
}

// record appends to the catalog.
func (b *Backup) record(r record) {
	if err := b.catalog.append(&r); err != nil {
		b.report(err)
	}
}

// compact begins a new catalog when the old one is mostly about what was. Called with
// the store's mu held.
func (b *Backup) compact(s *Store) {
	if b == nil || !b.catalog.wasteful() || b.deaf.Load() {
		return
	}
	var records []record
	for i := range s.items.all() {
		if !b.unkept[i.Key] {
			records = append(records, putOf(i))
		}
	}
	c, err := newCatalogOf(b.catalog.generation+1, records)
	if err != nil {
		b.report(err)
		return
	}
	if !b.store(c.name(), c.fd) {
		// The old one says the same.
		_ = unix.Close(c.fd)
		return
	}
	old := b.catalog
	b.catalog = c
	b.remove(old.name())
	_ = unix.Close(old.fd)
}

// Tell tells the service manager something of sd_notify(3), such as "READY=1", which is what Heed repeats if it was not
// heard. A nil Backup tells nobody.
func (b *Backup) Tell(text string) {
	if b != nil {
		b.tell(text)
	}
}

// Owes reports whether the manager has not heard what it must hear: call Heed then, a while later. Both are for after Restore.
func (b *Backup) Owes() bool {
	if b == nil {
		return false
	}
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	return b.due || b.owes()
}

// Heed says again what the manager must hear and has not heard, without waiting for it.
func (b *Backup) Heed() {
	if b == nil {
		return
	}
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	if b.heed() && b.again() {
		b.deaf.Store(false) // and not after the first that it takes: whoever puts something next would wait for it
	}
}

// Close ends the backup in good order, after Store.Clear: nothing of it is left with the
// service manager.
func (b *Backup) Close() error {
	if b == nil {
		return nil
	}
	var err error
	if b.core != "" {
		b.remove(b.core)
	}
	if b.catalog != nil {
		b.remove(b.catalog.name())
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
