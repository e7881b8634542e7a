package client_test

import (
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// withoutDescriptors calls f while this process can open no file, also in the place of one that it closes, or only there.
func withoutDescriptors(t *testing.T, inPlace bool, f func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 3
	if inPlace {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range open {
			n, _ := strconv.Atoi(e.Name())
			low.Cur = max(low.Cur, uint64(n)+1)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var taken []int
	defer func() {
		for _, fd := range taken {
			_ = unix.Close(fd)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	for range low.Cur {
		fd, err := unix.Dup(0)
		if err != nil {
			break
		}
		taken = append(taken, fd)
	}
	f()
}

// A process that can open no more files gets no region, and keeps what it has: large messages go without.
func TestRegionsWithoutDescriptors(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	// The service is no part of this process: it is given the lanes that have not been used some time later.
	daemontest.Spawn(t, "service", b.Socket, "someone")
	c := attach(t, a)
	m := method(t, c, "b/t/who")
	stillAttached(t, c, m)
	withoutDescriptors(t, false, func() {
		if _, err := c.AllocRegion(t.Context(), 1<<20); !errors.Is(err, client.ErrLimit) {
			t.Errorf("a region: %v", err)
		}
		if answer, err := m.Call(t.Context(), make([]byte, 3<<20)); err != nil || string(answer) != "someone" {
			t.Errorf("a large message: %q, %v", answer, err)
		}
	})
	stillAttached(t, c, m)
	r, err := c.AllocRegion(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Free(); err != nil {
		t.Error(err)
	}
}

// A process that can open no more files is given the lanes to other nodes all the same: what comes with them is mapped and closed.
func TestLanesWithoutDescriptors(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, a, 1, nil)
	serve(t, b, 1, nil)
	c := attach(t, a)
	stillAttached(t, c, method(t, c, "t/echo"))
	method(t, attach(t, a), "b/t/echo") // from now on it is known
	var m *client.Method
	withoutDescriptors(t, true, func() {
		var err error
		if m, err = c.Method(t.Context(), "b/t/echo"); err != nil {
			t.Fatal(err)
		}
		if answer, err := m.Call(t.Context(), []byte("x")); err != nil || string(answer) != "x" {
			t.Errorf("%q, %v", answer, err)
		}
	})
	stillAttached(t, c, m)
}

// So is one in which others wait for descriptors all the time, and are faster now and then: what it keeps back for lanes they do not
// get while it deals with messages, and a lane waits for what they have got.
func TestLanesBesideOthersWhoWait(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, a, 1, nil)
	serve(t, b, 1, nil)
	method(t, attach(t, a), "b/t/echo") // from now on it is known
	conns := make([]*client.Conn, 8)
	for i := range conns {
		conns[i] = attach(t, a)
		stillAttached(t, conns[i], method(t, conns[i], "t/echo"))
	}
	withoutDescriptors(t, true, func() {
		stop, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for {
				select {
				case <-stop:
					return
				default:
				}
				// As a server that accepts does, which is faster than anybody who asks now and then. The sleeps are what it does with a
				// descriptor, and between two: nothing waits for them.
				if fd, err := unix.Dup(0); err == nil {
					time.Sleep(20 * time.Millisecond)
					_ = unix.Close(fd)
					time.Sleep(2 * time.Millisecond)
				}
			}
		}()
		defer func() { close(stop); <-over }()
		for _, c := range conns {
			for range 20 {
				if _, err := c.Status(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			m, err := c.Method(t.Context(), "b/t/echo")
			if err != nil {
				t.Fatal(err)
			}
			stillAttached(t, c, m)
		}
	})
	for _, c := range conns {
		stillAttached(t, c, method(t, c, "b/t/echo"))
	}
}
