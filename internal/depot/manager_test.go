package depot

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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

// passed is what the next supervisor is passed.
func (r *deafRig) passed() map[string]int {
	r.t.Helper()
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
	return again
}

// restart returns what the next supervisor gets.
func (r *deafRig) restart() string {
	r.t.Helper()
	var got []string
	b := &Backup{manager: newManager(-1, r.said.add), kept: r.passed()}
	items, _ := b.restored()
	for _, i := range items {
		got = append(got, i.Key+string(i.Meta))
		i.Close()
	}
	closeAll(b.kept)
	return strings.Join(got, " ")
}

// What a service manager did not hear of is not in the catalog, and the catalog that it has stays the one
// that counts, until it is heard.
func TestWhatADeafManagerMissed(t *testing.T) {
	r := newDeafRig(t)
	r.put("a", "1")
	r.reads()
	r.deafen()
	r.put("b", "1")
	for n := range 20_000 { // the catalog is mostly about what was
		if err := r.apply(&message{Op: opMeta, Key: "a", Meta: json.RawMessage(strconv.Itoa(n))}, nil); err != nil {
			t.Fatal(err)
		}
	}
	r.reads()
	r.put("c", "1")
	r.reads()
	if got := r.restart(); got != "a19999 c1" || !r.Owes() {
		t.Errorf("the next supervisor gets %q", got)
	}
	r.Heed()
	r.reads()
	if got := r.restart(); got != "a19999 c1 b1" || r.Owes() {
		t.Errorf("the next supervisor gets %q when the manager listens again", got)
	}
	if err := r.apply(&message{Op: opMeta, Key: "b", Meta: json.RawMessage("2")}, nil); err != nil {
		t.Fatal(err)
	}
	if got := r.restart(); got != "a19999 c1 b2" {
		t.Errorf("the next supervisor gets %q of what is kept again", got)
	}
}

// What was missed is said to be, comes as it is by then and in order, and not at all if it has gone.
func TestMissedAndChanged(t *testing.T) {
	r := newDeafRig(t)
	r.put("domain", "1")
	r.reads()
	r.deafen()
	r.put("domain", "2") // has other memory
	r.put("a", "1")
	r.put("b", "1")
	r.put("c", "1")
	deaf := func(err error) bool { return errors.Is(err, ErrManager) }
	if errs := slices.DeleteFunc(r.said.take(), deaf); len(errs) != 4 || !strings.Contains(errs[3].Error(), "c is not kept") {
		t.Errorf("it says %v", errs)
	}
	if err := r.apply(&message{Op: opMeta, Key: "c", Meta: json.RawMessage("2")}, nil); err != nil {
		t.Fatal(err)
	}
	r.drop("a")
	r.Heed() // in vain
	r.reads()
	r.Heed()
	r.reads()
	if got := r.restart(); got != "domain2 b1 c2" || r.Owes() {
		t.Errorf("the next supervisor gets %q", got)
	}
	r.deafen()
	r.put("d", "1")
	r.drop("d")
	r.reads()
	if r.Owes() {
		t.Error("it is to be told of an item that has gone")
	}
}

// What there is no room for by the length of the names comes when something is dropped, at once or, if the manager
// is deaf then, later.
func TestRoomForNames(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		r := newDeafRig(t)
		r.names = maxNames - len("a#0:")
		r.put("a", "1")
		r.put("b", "1")
		r.reads()
		if got := r.restart(); got != "a1" || r.Owes() {
			t.Fatalf("the next supervisor gets %q", got)
		}
		if deaf {
			r.deafen()
		}
		r.drop("a")
		r.reads()
		if deaf {
			if got := r.restart(); got != "" || !r.Owes() {
				t.Errorf("the next supervisor gets %q from a deaf manager", got)
			}
			r.Heed()
			r.reads()
		}
		if got := r.restart(); got != "b1" || r.Owes() {
			t.Errorf("the next supervisor gets %q, deaf: %v", got, deaf)
		}
	}
}

// What waits for room waits behind what came before it, and no longer.
func TestRoomBehindAnother(t *testing.T) {
	r := newDeafRig(t)
	r.most = 3
	r.put("a", "1")
	r.put("b", "1")
	r.put("c", "1")
	if err := r.apply(&message{Op: opPut, Key: "big", Meta: json.RawMessage("1")}, []int{someFD(t), someFD(t), someFD(t)}); err != nil {
		t.Fatal(err)
	}
	r.put("small", "1")
	for _, c := range []struct{ drop, want string }{{"c", "a1 b1"}, {"big", "a1 b1 small1"}} {
		r.drop(c.drop)
		r.reads()
		if got := r.restart(); got != c.want || r.Owes() {
			t.Errorf("without %s the next supervisor gets %q", c.drop, got)
		}
	}
}

// Whoever puts something waits for no more than so much of what was missed, and not for a manager that has much to read, which is
// not taken for a deaf one.
func TestHeedIsShort(t *testing.T) {
	r := newDeafRig(t)
	r.limits = Limits{Items: 1000, FDs: 1000}
	r.deafen()
	const missed, none = 2*againAtOnce + 1, "FDSTOREREMOVE=1\nFDNAME=none"
	for n := range missed {
		r.put(strconv.Itoa(n), "1")
	}
	r.reads()
	limit := unix.NsecToTimeval(int64(time.Hour))
	if err := unix.SetsockoptTimeval(r.fds[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	for r.Tell(none); r.send(true, none); { // it listens, and then has much to read
	}
	r.Heed()
	if errs := r.said.take(); len(r.unkept) != missed || r.deaf.Load() || len(errs) > 0 {
		t.Errorf("%d are missed, deaf: %v, it says %v", len(r.unkept), r.deaf.Load(), errs)
	}
	r.reads()
	r.Heed()
	if len(r.unkept) != missed-againAtOnce || !r.Owes() {
		t.Errorf("%d of %d are missed then", len(r.unkept), missed)
	}
	for range 2 {
		r.reads()
		r.Heed()
	}
	r.reads()
	if got := len(strings.Fields(r.restart())); got != missed || r.Owes() {
		t.Errorf("the next supervisor gets %d of %d", got, missed)
	}
}

// A manager that takes a few messages and then none again is not waited for once more.
func TestHalfDeafManager(t *testing.T) {
	r := newDeafRig(t)
	r.reads()
	r.deafen()
	const missed = 20
	for n := range missed {
		r.put(strconv.Itoa(n), "1")
	}
	for range missed / 2 {
		if _, err := unix.Read(r.fds[1], make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	r.Heed()
	if n := len(r.unkept); n == 0 || n == missed || !r.deaf.Load() {
		t.Errorf("%d of %d are missed, deaf: %v", n, missed, r.deaf.Load())
	}
	r.reads()
	r.Heed()
	r.reads()
	if got := len(strings.Fields(r.restart())); got != missed || r.Owes() || r.deaf.Load() {
		t.Errorf("the next supervisor gets %d of %d, deaf: %v", got, missed, r.deaf.Load())
	}
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
	if got := r.restart(); got != "a3 b2" || r.Owes() {
		t.Errorf("the next supervisor gets %q: b is not removed later, and stored anew", got)
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
	next, _ := newStore(t, Limits{Items: 100, FDs: 100})
	err := (&Backup{manager: newManager(r.fds[0], r.said.add), kept: r.passed(), unkept: make(map[string]bool)}).Restore(next)
	undo()
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("restored: %v", err)
	}
	r.reads()
	if got := r.restart(); got != want {
		t.Errorf("the next supervisor gets %q, and not %q", got, want)
	}
}

// An item that could not be written into the catalog is not taken for kept: it is put again.
func TestItemThatCannotBeWritten(t *testing.T) {
	r := newDeafRig(t)
	r.put("a", "1")
	undo := full(t)
	r.put("b", strings.Repeat("1", 200))
	undo()
	if errs := r.said.take(); len(errs) != 1 || !errors.Is(errs[0], unix.EFBIG) && !errors.Is(errs[0], unix.ENOSPC) {
		t.Errorf("it says %v", errs)
	}
	if !r.Owes() {
		t.Error("nothing is to be told again")
	}
	r.reads()
	if r.kept[fdName("b", 0)] != 0 {
		t.Error("the manager has descriptors of what is in no catalog")
	}
	r.Heed()
	r.reads()
	if got := r.restart(); r.Owes() || got != "a1 b"+strings.Repeat("1", 200) {
		t.Errorf("owes: %v; the next supervisor gets %q", r.Owes(), got)
	}
}

// A catalog that the manager has not heard of is stored later, and only then those before it are removed.
func TestRestoreNotHeard(t *testing.T) {
	r := newDeafRig(t)
	r.put("a", "1")
	r.reads()
	r.kept["left#0"] = someFD(t) // in no catalog
	again := r.passed()
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
