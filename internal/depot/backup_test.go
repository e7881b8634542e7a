package depot

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// managerSockets returns the daemon's and the service manager's end of a socket.
func managerSockets(t *testing.T) [2]int {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(unix.Close(fds[0]), unix.Close(fds[1])) })
	return fds
}

// backedUp returns a store of which a manager behind sock keeps at most so many descriptors.
func backedUp(t *testing.T, sock int, l Limits, most int) (*Store, *Backup, *reports) {
	t.Helper()
	s, r := newStore(t, l)
	b := &Backup{manager: newManager(sock, r.add), most: most, unkept: make(map[string]bool)}
	if err := b.Restore(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(b.catalog.fd) })
	return s, b, r
}

// A service manager that does not read is waited for once, and not again until it has read.
func TestDeafManager(t *testing.T) {
	fds := managerSockets(t)
	limit := func(d time.Duration) {
		t.Helper()
		v := unix.NsecToTimeval(int64(d))
		if err := unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &v); err != nil {
			t.Fatal(err)
		}
	}
	var r reports
	b := &Backup{manager: newManager(fds[0], r.add)}
	limit(10 * time.Millisecond)
	sent := 0
	for ; len(r.take()) == 0; sent++ {
		b.Tell("WATCHDOG=1")
	}
	limit(time.Hour)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			b.Tell("WATCHDOG=1")
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the manager again")
	}
	if errs := r.take(); len(errs) != 100 || !errors.Is(errs[0], ErrManager) {
		t.Errorf("%d errors: %v", len(errs), errs)
	}
	for range sent - 1 {
		if _, err := unix.Read(fds[1], make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	b.Tell("READY=1")
	if errs := r.take(); len(errs) > 0 || b.deaf.Load() {
		t.Errorf("when it has read: %v, deaf %v", errs, b.deaf.Load())
	}
}

// someFD returns a descriptor of the store's own.
func someFD(t *testing.T) int {
	t.Helper()
	fd, err := unix.FcntlInt(os.Stdin.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// stored does what a service manager with the store kept was told since the last call.
func stored(t *testing.T, sock int, kept map[string]int) {
	t.Helper()
	for {
		text, oob := make([]byte, 4096), make([]byte, 100)
		n, oobn, _, _, err := unix.Recvmsg(sock, text, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		said := string(text[:n])
		_, name, _ := strings.Cut(said, "FDNAME=")
		if strings.HasPrefix(said, "FDSTOREREMOVE") {
			if fd, ok := kept[name]; ok {
				_ = unix.Close(fd)
				delete(kept, name)
			}
			continue
		}
		list, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(list) != 1 {
			t.Fatalf("%q with %d: %v", said, len(list), err)
		}
		fds, err := unix.ParseUnixRights(&list[0])
		if err != nil {
			t.Fatal(err)
		}
		kept[name] = fds[0]
	}
}

// What the service manager has no room for is said and left out, and nothing else is lost: neither
// by the number of descriptors nor by the length of their names.
func TestFullManager(t *testing.T) {
	for name, c := range map[string]struct{ most, names int }{
		"descriptors": {5, 0},
		"names":       {math.MaxInt, maxNames - 5*len("a#0:")},
	} {
		t.Run(name, func(t *testing.T) {
			fds, kept := managerSockets(t), make(map[string]int)
			defer func() { closeAll(kept) }()
			s, b, r := backedUp(t, fds[0], Limits{Items: 100, FDs: 100}, c.most)
			b.names += c.names
			do := func(m *message, n int) {
				t.Helper()
				var list []int
				for range n {
					list = append(list, someFD(t))
				}
				if err := s.apply(m, list); err != nil {
					t.Fatal(err)
				}
				stored(t, fds[1], kept)
			}
			put := func(key string, n int) { do(&message{Op: opPut, Key: key, Meta: json.RawMessage(`1`)}, n) }
			put("a", 2)
			put("b", 1)
			put("c", 3) // no room
			put("d", 1)
			do(&message{Op: opMeta, Key: "c", Meta: json.RawMessage(`2`)}, 0)
			do(&message{Op: opMeta, Key: "d", Meta: json.RawMessage(`2`)}, 0)
			do(&message{Op: opDrop, Key: "a"}, 0)
			put("e", 2)
			put("f", 2) // no room
			do(&message{Op: opDrop, Key: "c"}, 0)
			if errs := r.take(); len(errs) != 2 || !strings.Contains(errs[0].Error(), "c is not") || !strings.Contains(errs[1].Error(), "f is not") {
				t.Errorf("%d errors: %v", len(errs), errs)
			}
			if items, n := s.Size(); items != 4 || n != 6 {
				t.Errorf("%d items, %d descriptors are kept for the next core", items, n)
			}
			var got []string
			items, _ := (&Backup{manager: newManager(-1, r.add), kept: kept}).restored()
			for _, i := range items {
				got = append(got, i.Key+string(i.Meta))
				i.Close()
			}
			if strings.Join(got, " ") != "b1 d2 e1" {
				t.Errorf("the next supervisor gets %v", got)
			}
		})
	}
}

// An item without descriptors is replaced in one step, so that a supervisor that dies meanwhile
// leaves the one or the other.
func TestReplacedInOneStep(t *testing.T) {
	fds := managerSockets(t)
	s, b, _ := backedUp(t, fds[0], Limits{Items: 100, FDs: 100}, math.MaxInt)
	for _, text := range []string{"1", "2"} {
		if err := s.apply(&message{Op: opPut, Key: "node", Meta: json.RawMessage(text)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	records, complete := readCatalog(b.catalog.fd)
	for _, rec := range records {
		if rec.Op == opDrop {
			t.Errorf("dropped in between: %+v", records)
		}
	}
	if i := s.items["node"]; !complete || i == nil || string(i.Meta) != "2" {
		t.Errorf("kept %+v", i)
	}
}

// What a service manager did not hear of is not in the catalog, and the catalog that it has stays the one
// that counts.
func TestWhatADeafManagerMissed(t *testing.T) {
	fds := managerSockets(t)
	limit := unix.NsecToTimeval(int64(10 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	kept := make(map[string]int)
	defer func() { closeAll(kept) }()
	s, b, r := backedUp(t, fds[0], Limits{Items: 1 << 20, FDs: 100}, math.MaxInt)
	put := func(key string) {
		t.Helper()
		if err := s.apply(&message{Op: opPut, Key: key, Meta: json.RawMessage(`1`)}, []int{someFD(t)}); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	stored(t, fds[1], kept)
	for len(r.take()) == 0 { // until its queue is full
		b.Tell("FDSTOREREMOVE=1\nFDNAME=none")
	}
	put("b")
	for n := range 20_000 { // the catalog is mostly about what was
		if err := s.apply(&message{Op: opMeta, Key: "a", Meta: json.RawMessage(strconv.Itoa(n))}, nil); err != nil {
			t.Fatal(err)
		}
	}
	stored(t, fds[1], kept)
	put("c")
	stored(t, fds[1], kept)
	var got []string
	items, _ := (&Backup{manager: newManager(-1, r.add), kept: kept}).restored()
	for _, i := range items {
		got = append(got, i.Key+string(i.Meta))
		i.Close()
	}
	if strings.Join(got, " ") != "a19999 c1" {
		t.Errorf("the next supervisor gets %v", got)
	}
	r.take()
}

// deafRig is a store whose manager reads when it is told to, with what that keeps.
type deafRig struct {
	t    *testing.T
	fds  [2]int
	kept map[string]int
	*Store
	*Backup
	said *reports
}

func newDeafRig(t *testing.T) *deafRig {
	t.Helper()
	r := &deafRig{t: t, fds: managerSockets(t), kept: make(map[string]int)}
	limit := unix.NsecToTimeval(int64(10 * time.Millisecond))
	if err := unix.SetsockoptTimeval(r.fds[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(r.kept) })
	r.Store, r.Backup, r.said = backedUp(t, r.fds[0], Limits{Items: 100, FDs: 100}, math.MaxInt)
	return r
}

// put puts an item, with a descriptor of its own.
func (r *deafRig) put(key, meta string) {
	r.t.Helper()
	if err := r.apply(&message{Op: opPut, Key: key, Meta: json.RawMessage(meta)}, []int{someFD(r.t)}); err != nil {
		r.t.Fatal(err)
	}
}

// drop drops an item.
func (r *deafRig) drop(key string) {
	r.t.Helper()
	if err := r.apply(&message{Op: opDrop, Key: key}, nil); err != nil {
		r.t.Fatal(err)
	}
}

// deafen makes the manager one that takes nothing until it reads.
func (r *deafRig) deafen() {
	for len(r.said.take()) == 0 {
		r.Tell("FDSTOREREMOVE=1\nFDNAME=none")
	}
}

// reads has the manager do what it was told.
func (r *deafRig) reads() {
	r.t.Helper()
	stored(r.t, r.fds[1], r.kept)
	r.said.take()
}

// restart returns what the next supervisor gets.
func (r *deafRig) restart() string {
	r.t.Helper()
	var got []string
	again := make(map[string]int)
	for name, fd := range r.kept {
		if fd != ambiguous {
			var err error
			if fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				r.t.Fatal(err)
			}
		}
		again[name] = fd
	}
	b := &Backup{manager: newManager(-1, r.said.add), kept: again}
	items, _ := b.restored()
	for _, i := range items {
		got = append(got, i.Key+string(i.Meta))
		i.Close()
	}
	closeAll(b.kept)
	return strings.Join(got, " ")
}

// What the manager did not hear that it was to remove is removed before anything is stored under that name again, or
// nothing is: the next supervisor would take the one for the other.
func TestRemovalNotHeard(t *testing.T) {
	r := newDeafRig(t)
	r.put("a", "1")
	r.put("b", "1")
	r.reads()
	r.deafen()
	r.drop("a")
	r.drop("b")
	r.put("b", "2")
	r.reads()
	if r.kept["a#0"] == 0 || r.kept["b#0"] == 0 {
		t.Fatal("it was heard")
	}
	if got := r.restart(); got != "" {
		t.Errorf("the next supervisor gets %q after a removal that was not heard", got)
	}
	r.put("a", "3")
	r.reads()
	if got := r.restart(); got != "a3" {
		t.Errorf("the next supervisor gets %q", got)
	}
	if !r.Owes() {
		t.Error("it is forgotten that b is to be removed")
	}
	r.Heed()
	r.reads()
	if _, there := r.kept["b#0"]; there || r.Owes() {
		t.Errorf("b is not removed later")
	}
}

// Descriptors that were passed under one name are nobody's.
func TestTwoOfOneName(t *testing.T) {
	r := newDeafRig(t)
	r.put("a", "1")
	r.put("b", "1")
	r.reads()
	p := &Passed{kept: r.kept}
	p.keep("a#0", someFD(t))
	if got := r.restart(); got != "b1" {
		t.Errorf("the next supervisor gets %q", got)
	}
	if errs := r.said.take(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "a is lost") {
		t.Errorf("it says %v", errs)
	}
	p.keep("a#0", someFD(t))
	if r.kept["a#0"] != ambiguous {
		t.Error("the third is taken for the one")
	}
	// All cores that may run are waited for.
	p.keep(coreName+"0", someFD(t))
	p.keep(coreName+"0", someFD(t))
	if len(p.cores) != 2 || r.kept[coreName+"0"] != ambiguous {
		t.Errorf("cores %v, kept %v", p.cores, r.kept)
	}
	closeList(p.cores)
	// The next catalog has a name of its own, also beside one that nobody can read.
	p.kept[catalogName+"7"] = ambiguous
	b := &Backup{manager: newManager(-1, r.said.add), kept: maps.Clone(p.kept)}
	items, generation := b.restored()
	if len(items) != 1 || items[0].Key != "b" || generation != 7 {
		t.Errorf("%d items, generation %d", len(items), generation)
	}
	delete(r.kept, "b#0") // the item's now
	items[0].Close()
}

// That the service is ready is said until it was heard, but not when it ends.
func TestReadyNotHeard(t *testing.T) {
	r := newDeafRig(t)
	hear := func() (said []string) {
		for {
			text := make([]byte, 4096)
			n, _, _, _, err := unix.Recvmsg(r.fds[1], text, nil, unix.MSG_DONTWAIT)
			if err != nil {
				return said
			}
			said = append(said, string(text[:n]))
		}
	}
	r.deafen()
	r.Tell("READY=1\nSTATUS=Node a serves")
	r.Tell("WATCHDOG=1")
	r.Heed()
	hear()
	r.Heed()
	r.Heed()
	if said := hear(); len(said) != 1 || said[0] != "READY=1\nSTATUS=Node a serves" || r.Owes() {
		t.Errorf("it says %q", said)
	}
	r.deafen()
	r.Tell("READY=1")
	hear()
	r.Tell("STOPPING=1")
	hear()
	r.Heed()
	if said := hear(); len(said) != 0 || r.Owes() {
		t.Errorf("while it stops it says %q", said)
	}
}

// full makes catalogs whose records cannot be written.
func full(t *testing.T) (undo func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 100, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
		signal.Reset(unix.SIGXFSZ)
	}
}

// A catalog that cannot be written does not replace the one that there is, neither of this supervisor nor of
// the one before.
func TestCatalogThatCannotBeWritten(t *testing.T) {
	r := newDeafRig(t)
	for n := range 20 {
		r.put("item"+strconv.Itoa(n), "1")
	}
	r.reads()
	want := r.restart()
	r.catalog.first = -wasteAt
	undo := full(t)
	r.compact(r.Store)
	if errs := r.said.take(); len(errs) != 1 || !errors.Is(errs[0], unix.ENOSPC) {
		t.Errorf("it says %v", errs)
	}
	again := make(map[string]int)
	for name, fd := range r.kept {
		again[name], _ = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	next, _ := newStore(t, Limits{Items: 100, FDs: 100})
	err := (&Backup{manager: newManager(r.fds[0], r.said.add), kept: again, unkept: make(map[string]bool)}).Restore(next)
	undo()
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("restored: %v", err)
	}
	r.reads()
	if got := r.restart(); got != want {
		t.Errorf("the next supervisor gets %q, and not %q", got, want)
	}
}

// A catalog that the manager has not heard of is stored later, and only then those before it are removed.
func TestRestoreNotHeard(t *testing.T) {
	r := newDeafRig(t)
	r.put("a", "1")
	r.reads()
	r.kept["left#0"] = someFD(t) // in no catalog
	again := make(map[string]int)
	for name, fd := range r.kept {
		var err error
		if again[name], err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.deafen()
	next, _ := newStore(t, Limits{Items: 100, FDs: 100})
	b := &Backup{manager: newManager(r.fds[0], r.said.add), kept: again, unkept: make(map[string]bool), most: math.MaxInt}
	if err := b.Restore(next); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(b.catalog.fd) }()
	if err := next.apply(&message{Op: opMeta, Key: "a", Meta: json.RawMessage("2")}, nil); err != nil {
		t.Fatal(err)
	}
	r.reads()
	if got := r.restart(); got != "a1" || !b.Owes() {
		t.Errorf("the next supervisor gets %q", got)
	}
	// What was left over is removed before something else is stored under that name.
	if err := next.apply(&message{Op: opPut, Key: "left", Meta: json.RawMessage("3")}, []int{someFD(t)}); err != nil {
		t.Fatal(err)
	}
	r.reads()
	if got := r.restart(); got != "a2 left3" {
		t.Errorf("the next supervisor gets %q", got)
	}
	b.Heed()
	r.reads()
	if got := r.restart(); got != "a2 left3" || len(r.kept) != 3 || b.Owes() {
		t.Errorf("the next supervisor gets %q of %d", got, len(r.kept))
	}
}
