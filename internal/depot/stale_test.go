package depot

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// Where an item cannot be kept, the one that had its key is not kept either: the next core would adopt memory that
// nobody uses any more.
func TestNothingStaleIsKept(t *testing.T) {
	fd, err := memfd("content")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for name, replace := range map[string]func(t *testing.T, c *Client) error{
		"not sent": func(t *testing.T, c *Client) error { return c.Put("a", meta{2}, -1) },
		"too much": func(t *testing.T, c *Client) error { return c.Put("a", make([]int, MaxMeta), fd) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t, Limits{Items: 10, FDs: 10})
			c, _ := serve(t, s, nil)
			if err := errors.Join(c.Put("a", meta{1}, fd), c.Put("b", meta{1}, fd)); err != nil {
				t.Fatal(err)
			}
			if err := replace(t, c.Client); err == nil {
				t.Fatal("it could be kept")
			}
			c.end()
			if items, fds := s.Size(); items != 1 || fds != 1 || s.Meta("b") == nil {
				t.Errorf("%d items with %d descriptors, of a: %s", items, fds, s.Meta("a"))
			}
		})
	}
}

// The same where the supervisor has no descriptor left when an item comes.
func TestNothingStaleIsKeptWithoutDescriptors(t *testing.T) {
	s, r := newStore(t, Limits{Items: 10, FDs: 10})
	fd, err := memfd("content")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	put := func(n int, keys ...string) {
		t.Helper()
		c, items := serve(t, s, nil)
		for _, i := range items {
			i.Close()
		}
		if n == 2 {
			defer withoutDescriptors(t)()
		}
		for _, key := range keys {
			if err := c.Put(key, meta{n}, fd); err != nil {
				t.Error(err)
			}
		}
		c.end()
	}
	put(1, "a", "b")
	put(2, "a")
	if errs := r.take(); len(errs) != 1 || !errors.Is(errs[0], shm.ErrFDsLost) {
		t.Errorf("said: %v", errs)
	}
	if items, fds := s.Size(); items != 1 || fds != 1 || s.Meta("b") == nil {
		t.Errorf("%d items with %d descriptors, of a: %s", items, fds, s.Meta("a"))
	}
	put(3, "a")
	if items, fds := s.Size(); items != 2 || fds != 2 || len(r.take()) > 0 {
		t.Errorf("%d items with %d descriptors when there is room again", items, fds)
	}
}

// withoutDescriptors has this process get no descriptors until the function that it returns is called.
func withoutDescriptors(t *testing.T) (again func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
			t.Error(err)
		}
	}
	set(unix.Rlimit{Max: before.Max})
	return func() { set(before) }
}
