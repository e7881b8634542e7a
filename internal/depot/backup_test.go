package depot

import (
	"encoding/json"
	"errors"
	"math"
	"os"
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
		if _, ok := kept[name]; ok {
			t.Errorf("two of the name %s", name)
		}
		kept[name] = fds[0]
	}
}

// What the service manager has no room for is said and left out until room has come, and nothing else is lost: neither
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
			if kept["c#0"] == 0 || kept["c#2"] == 0 {
				t.Error("there is room now, and c is not kept")
			}
			put("e", 2) // no room
			put("f", 2) // no room
			do(&message{Op: opDrop, Key: "c"}, 0)
			errs := r.take()
			if len(errs) != 3 {
				t.Fatalf("%d errors: %v", len(errs), errs)
			}
			for n, key := range []string{"c", "e", "f"} {
				if !strings.Contains(errs[n].Error(), key+" is not kept by the service manager: no room") {
					t.Errorf("of %s it says %v", key, errs[n])
				}
			}
			if b.Owes() {
				t.Error("it does not wait for room")
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
	if i := s.items.get("node"); !complete || i == nil || string(i.Meta) != "2" {
		t.Errorf("kept %+v", i)
	}
}
