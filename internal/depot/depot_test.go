package depot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/leaktest"
)

// roleEnv makes the test binary a core that does what its value says.
const roleEnv = "RDMAD_DEPOT_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

type meta struct {
	N int `json:"n"`
}

// play is the main function of a core.
func play(role string) error {
	c, items, err := Open(os.NewFile(3, "depot"), nil)
	if err != nil {
		return err
	}
	switch role {
	case "put":
		// More than fits the socket at once, ended by a SIGKILL right behind the last call.
		for n := range 500 {
			fd, err := memfd(fmt.Sprint("content ", n))
			if err != nil {
				return err
			}
			if err := c.Put(fmt.Sprint("item/", n), meta{n}, fd); err != nil {
				return err
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
			if n%2 == 1 {
				err = c.Drop(fmt.Sprint("item/", n))
			} else {
				err = c.Update(fmt.Sprint("item/", n), meta{n + 1000})
			}
			if err != nil {
				return err
			}
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "get":
		if len(items) != 250 {
			return fmt.Errorf("%d items", len(items))
		}
		for k, i := range items {
			var v meta
			if err := json.Unmarshal(i.Meta, &v); err != nil {
				return err
			}
			text, err := read(i.FDs[0])
			if err != nil {
				return err
			}
			if i.Key != fmt.Sprint("item/", 2*k) || v.N != 2*k+1000 || text != fmt.Sprint("content ", 2*k) {
				return fmt.Errorf("%s: %+v, %q", i.Key, v, text)
			}
			i.Close()
		}
		if err := c.Ready(); err != nil {
			return err
		}
		return c.Close()
	}
	return errors.New("no such role")
}

func memfd(text string) (int, error) {
	fd, err := unix.MemfdCreate("depot-test", unix.MFD_CLOEXEC)
	if err == nil {
		_, err = unix.Write(fd, []byte(text))
	}
	return fd, err
}

func read(fd int) (string, error) {
	buf := make([]byte, 64)
	n, err := unix.Pread(fd, buf, 0)
	return string(buf[:max(n, 0)]), err
}

// reports collects what a store reports.
type reports struct {
	mu  sync.Mutex
	all []error
}

func (r *reports) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, err)
}

func (r *reports) take() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

func newStore(t *testing.T, l Limits) (*Store, *reports) {
	r := &reports{}
	s := NewStore(l, r.add)
	t.Cleanup(s.Clear)
	return s, r
}

// runCore runs a core in a role to its end.
func runCore(t *testing.T, s *Store, role string) (*Link, error) {
	t.Helper()
	l, theirs, err := s.Pair()
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		l.Serve()
		close(served)
	}()
	late := time.AfterFunc(4*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err = cmd.Wait()
	<-served
	return l, err
}

// What a core has put survives its SIGKILL, down to the last message.
func TestSurvivesTheCore(t *testing.T) {
	before := leaktest.Descriptors(t)
	s, r := newStore(t, Limits{Items: 1000, FDs: 1000})
	if _, err := runCore(t, s, "put"); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the core ended as %v", err)
	}
	for range 3 {
		l, err := runCore(t, s, "get")
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Ready():
		default:
			t.Error("the core was not ready")
		}
	}
	if items, fds := s.Size(); items != 250 || fds != 250 {
		t.Errorf("%d items, %d descriptors", items, fds)
	}
	if errs := r.take(); len(errs) > 0 {
		t.Error(errs)
	}
	s.Clear()
	if now := leaktest.Descriptors(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

// localCore is a core in this process. served is closed when the store has done all
// that it has said, after its end.
type localCore struct {
	*Client
	served chan struct{}
}

func serve(t *testing.T, s *Store, note func(json.RawMessage)) (*localCore, []Item) {
	t.Helper()
	l, theirs, err := s.Pair()
	if err != nil {
		t.Fatal(err)
	}
	c := &localCore{served: make(chan struct{})}
	go func() {
		l.Serve()
		close(c.served)
	}()
	var items []Item
	if c.Client, items, err = Open(theirs, note); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	return c, items
}

func (c *localCore) end() {
	_ = c.Close()
	<-c.served
}

func TestPutAgainAndLimits(t *testing.T) {
	s, r := newStore(t, Limits{Items: 2, FDs: 3})
	c, _ := serve(t, s, nil)
	put := func(key string, fds int) {
		t.Helper()
		var list []int
		for n := range fds {
			fd, err := memfd(fmt.Sprint(key, n))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, fd)
		}
		if err := c.Put(key, meta{fds}, list...); err != nil {
			t.Fatal(err)
		}
		for _, fd := range list {
			_ = unix.Close(fd)
		}
	}
	put("a", 2)
	put("b", 1)
	put("c", 0) // too many items
	put("b", 2) // too many descriptors: the old one goes
	put("a", 1)
	put("d", 0) // in its place
	c.end()
	if have := s.Meta("b"); have != nil {
		t.Errorf("b is kept as it was: %s", have)
	}
	c, _ = serve(t, s, nil)
	if err := c.Drop("d"); err != nil {
		t.Fatal(err)
	}
	put("b", 2)
	c.end()
	if errs := r.take(); len(errs) != 2 || !strings.Contains(errs[0].Error(), "c is not kept") || !strings.Contains(errs[1].Error(), "at most 2 and 3") {
		t.Errorf("%v", errs)
	}
	_, items := serve(t, s, nil)
	if len(items) != 2 || items[0].Key != "a" || items[1].Key != "b" || len(items[0].FDs) != 1 || len(items[1].FDs) != 2 {
		t.Fatalf("%+v", items)
	}
	for _, i := range items {
		for n, fd := range i.FDs {
			if text, err := read(fd); text != fmt.Sprint(i.Key, n) || err != nil {
				t.Errorf("%s: %q, %v", i.Key, text, err)
			}
		}
		i.Close()
	}
}

func TestNotes(t *testing.T) {
	s, _ := newStore(t, Limits{Items: 1, FDs: 1})
	if err := s.Note(meta{1}); err != nil {
		t.Errorf("without a core: %v", err)
	}
	heard := make(chan string, 8)
	c, _ := serve(t, s, func(m json.RawMessage) { heard <- string(m) })
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		// The core is served from when it has been given everything, which is a
		// moment after it has heard so.
		for deadline := time.Now().Add(2 * time.Minute); n == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			s.mu.Lock()
			served := s.core != nil
			s.mu.Unlock()
			if served {
				break
			}
		}
		if err := s.Note(meta{n}); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != fmt.Sprintf(`{"n":%d}`, n) {
			t.Errorf("heard %s", got)
		}
	}
}

// Whatever comes over the socket, the store says so, keeps no descriptor of it and goes
// on.
func TestMalformedMessages(t *testing.T) {
	s, r := newStore(t, Limits{Items: 10, FDs: 10})
	c, _ := serve(t, s, nil)
	before := leaktest.Descriptors(t)
	bad := []string{
		"x", "{}", `{"op":"put"}`, `{"op":"put","key":"a:b"}`, `{"op":"put","key":"a b"}`, `{"op":"put","key":"a#b"}`,
		`{"op":"drop"}`, `{"op":"meta","key":"unknown"}`, `{"op":"end"}`, `{"op":"note"}`, `{"op":"steal","key":"a"}`,
		`{"op":"put","key":"` + strings.Repeat("a", MaxKey+1) + `"}`, `{"op":1}`, `[]`, "\x00", strings.Repeat("x", maxMessage+1),
	}
	for _, text := range bad {
		if _, err := c.conn.sock.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := memfd("x")
	if err != nil {
		t.Fatal(err)
	}
	rights := unix.UnixRights(fd, fd, fd, fd, fd)
	for _, text := range []string{`{"op":"put","key":"five"}`, `{"op":"meta","key":"a"}`, `{"op":"ready"}`, "y"} {
		if _, _, err := c.conn.sock.WriteMsgUnix([]byte(text), rights, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Put("good", meta{1}, fd); err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	c.end()
	if errs := r.take(); len(errs) != len(bad)+4 {
		t.Errorf("%d reports for %d messages: %v", len(errs), len(bad)+4, errs)
	}
	if items, fds := s.Size(); items != 1 || fds != 1 {
		t.Errorf("%d items, %d descriptors", items, fds)
	}
	s.Clear()
	if now := leaktest.Descriptors(t); now > before {
		t.Errorf("%d descriptors, %d before", now, before)
	}
}

func TestRefusals(t *testing.T) {
	s, _ := newStore(t, Limits{Items: 1, FDs: 1})
	c, _ := serve(t, s, nil)
	for name, err := range map[string]error{
		"no key":       c.Put("", nil),
		"colon":        c.Put("a:b", nil),
		"much":         c.Put("a", strings.Repeat("x", MaxMeta)),
		"no JSON":      c.Update("a", func() {}),
		"descriptors":  c.Put("a", nil, 0, 0, 0, 0, 0),
		"drop nothing": c.Drop(""),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none *Client
	if err := errors.Join(none.Put("a", nil, 0), none.Update("a", 1), none.Drop("a"), none.Ready(), none.Close()); err != nil {
		t.Errorf("without a depot: %v", err)
	}
	if _, _, err := Open(os.NewFile(uintptr(dupOf(t, os.Stderr)), "x"), nil); err == nil {
		t.Error("a descriptor that is no socket was taken")
	}
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.close()
	if _, _, err := Open(theirs, nil); !errors.Is(err, io.EOF) {
		t.Errorf("nobody at the other end: %v", err)
	}
}

func dupOf(t *testing.T, f *os.File) int {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"op":"put","key":"worker/default/7","meta":{"pid":1}}`), 3)
	f.Add([]byte(`{"op":"end"}`), 0)
	f.Add([]byte(`{"op":"put","key":"\u0000"}`), 0)
	f.Fuzz(func(t *testing.T, data []byte, fds int) {
		fds &= 15
		m, err := decode(data, fds)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v", err)
			}
			return
		}
		s := NewStore(Limits{Items: 1, FDs: 0}, func(error) {})
		if m.Op == opPut && fds > 0 {
			return // it would close what it was not given
		}
		_ = s.apply(m, nil)
		if _, err := m.encode(fds); err != nil && len(data) < maxMessage/8 {
			t.Errorf("cannot be sent on: %v", err)
		}
	})
}
