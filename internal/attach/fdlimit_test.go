package attach_test

import (
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// fillDescriptors makes this process one that can open no file more until the test ends.
func fillDescriptors(t *testing.T) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 0
	for _, e := range open {
		n, _ := strconv.Atoi(e.Name())
		low.Cur = max(low.Cur, uint64(n)+1)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	for taken(t) {
	}
}

// taken takes a descriptor until the test ends, if there is one.
func taken(t *testing.T) bool {
	fd, err := unix.Dup(0)
	if err == nil {
		t.Cleanup(func() { _ = unix.Close(fd) })
	}
	return err == nil
}

// What a session keeps back for the descriptor of a lane is not there for others who wait for one, while it deals with a
// message, with a descriptor or without, or waits for the next.
func TestSpareDescriptor(t *testing.T) {
	f := newFake(t)
	said := []string{"gone", "gone", "lane", "gone", "lane", "lane", "gone", "gone", "lane", "gone"}
	next := make(chan struct{})
	var full atomic.Bool
	done := f.script(func(c *attach.Conn) error {
		err := f.welcome(c)
		for id, what := range said {
			<-next
			if what == "lane" {
				err = errors.Join(err, f.lane(c, uint16(id)))
			} else {
				err = errors.Join(err, c.Send(&attach.Message{Type: attach.TypeGone, Lane: &attach.Lane{ID: 1}, Gone: &attach.Gone{}}))
			}
		}
		_, _, rerr := c.Recv() // the goodbye
		return errors.Join(err, rerr)
	})
	got := make(chan string)
	tell := func(what string) {
		if taken(t) && full.Load() {
			t.Errorf("with a %s there is a free descriptor", what)
		}
		got <- what
	}
	s, err := attach.Open(t.Context(), f.socket, attach.Hello{Role: attach.RoleClient}, attach.Events{
		Lane: func(attach.Lane, *slots.Ring) { tell("lane") },
		Gone: func(uint16, attach.Gone) { tell("gone") },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range said {
		next <- struct{}{}
		select {
		case what := <-got:
			if what != want {
				t.Fatalf("%s instead of %s", what, want)
			}
		case <-s.Done():
			t.Fatalf("no %s: %v", want, s.Err())
		case <-time.After(time.Minute):
			t.Fatalf("no %s", want)
		}
		if i == 0 {
			fillDescriptors(t) // it keeps one back by now
			full.Store(true)
		}
		if taken(t) {
			t.Errorf("after message %d, %s, there is a free descriptor", i, want)
		}
	}
	if err := errors.Join(s.Close(), <-done); err != nil {
		t.Error(err)
	}
	s.Release()
}
