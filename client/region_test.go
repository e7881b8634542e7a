package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// fillers starts a service on a node that fills regions with the first byte of the
// request, and waits until the caller knows it.
func fillers(t testing.TB, n *daemontest.Node, conn *client.Conn) *client.Method {
	t.Helper()
	srv, err := server.Attach(t.Context(), n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	err = srv.Handle("t", "fill", func(c *server.Call) error {
		for i := range c.NumRegions() {
			r := c.Region(i)
			if _, err := r.WriteAt(bytes.Repeat(c.Request()[:1], r.Len()), 0); err != nil {
				return err
			}
		}
		return c.Reply(c.Request())
	})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		_ = srv.Serve(context.Background())
		close(over)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-over
	})
	var m *client.Method
	daemontest.Eventually(t, "look up fill", func() (err error) {
		m, err = conn.Method(t.Context(), n.Name+"/t/fill")
		return err
	})
	return m
}

func attachTo(t testing.TB, n *daemontest.Node) *client.Conn {
	t.Helper()
	conn, err := client.Attach(t.Context(), n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// All eight references of a request work, also to the same region and to several.
func TestManyRegions(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	conn := attachTo(t, a)
	m := fillers(t, b, conn)
	var refs []client.RegionRef
	var all []*client.Region
	for i := range client.MaxRegions {
		r, err := conn.AllocRegion(t.Context(), 5000)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
		if i%2 == 1 {
			r = all[i-1]
		}
		ref, err := r.Ref(1000*(i%2), 500+i, client.MayWrite)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	for _, req := range []string{"x", "a request that takes more than the small slots have room for" + string(make([]byte, 5000))} {
		answer, err := m.With(client.AnswerSize(len(req))).CallRegions(t.Context(), []byte(req), refs...)
		if err != nil || string(answer) != req {
			t.Fatalf("%d bytes: %d bytes, %v", len(req), len(answer), err)
		}
		for i, r := range all {
			want := make([]byte, 5000)
			if i%2 == 0 {
				copy(want, bytes.Repeat([]byte(req[:1]), 500+i))
				copy(want[1000:], bytes.Repeat([]byte(req[:1]), 501+i))
			}
			if !bytes.Equal(r.Bytes(), want) {
				t.Errorf("%d bytes: region %d is wrong", len(req), i)
			}
		}
	}
	// None at all is a call like any other.
	if answer, err := m.CallRegions(t.Context(), []byte("y")); err != nil || string(answer) != "y" {
		t.Errorf("without regions: %q, %v", answer, err)
	}
}

// A call with regions allocates nothing when it has room for the answer.
func TestCallRegionsAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates: go test without -race counts allocations")
	}
	a, b := daemontest.Pair(t, "")
	conn := attachTo(t, a)
	m := fillers(t, b, conn)
	r, err := conn.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.Ref(0, 0, client.MayWrite)
	if err != nil {
		t.Fatal(err)
	}
	req, buf := []byte("x"), make([]byte, 0, 1024)
	ctx := context.Background()
	// Not with testing.AllocsPerRun, which leaves the process a single processor:
	// caller and handler are both in it.
	const calls = 2000
	// Of some rounds, after one that finds all that is kept: the daemons of the test are in this process, too, and do something now
	// and then.
	least := uint64(math.MaxUint64)
	for round := 0; round < 6 && least > calls/10; round++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			if _, err := m.CallRegionsInto(ctx, req, buf, ref); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if round > 0 {
			least = min(least, after.Mallocs-before.Mallocs)
		}
	}
	if least > calls/10 {
		t.Errorf("%d allocations in %d calls", least, calls)
	}
}

// A region of one connection is none of another's, and ends with its connection.
func TestRegionsOfConnections(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	first, second := attachTo(t, a), attachTo(t, a)
	m := fillers(t, b, first)
	r, err := second.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.Ref(0, 8, client.MayWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.CallRegions(t.Context(), "b/t/fill", []byte("x"), ref); err != nil {
		t.Error(err)
	}
	if _, err := m.CallRegions(t.Context(), []byte("x"), ref); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a reference of another connection: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Free(); err != nil {
		t.Errorf("free after close: %v", err)
	}
	if _, err := second.AllocRegion(t.Context(), 1); !errors.Is(err, client.ErrClosed) {
		t.Errorf("alloc after close: %v", err)
	}
	daemontest.Eventually(t, "the region is given back", func() error {
		for _, n := range []*daemontest.Node{a, b} {
			st, err := n.Status(t.Context())
			if err != nil {
				return err
			}
			for _, x := range st.Bulk {
				if x.Exports+x.Imports != 0 {
					return fmt.Errorf("node %s: %+v", n.Name, x)
				}
			}
		}
		return nil
	})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := first.AllocRegion(gone, 1<<20); !errors.Is(err, context.Canceled) && err != nil {
		t.Errorf("alloc without time: %v", err)
	}
}

// A process that keeps the descriptor of a region that it has freed does not keep its memory.
func TestFreedRegionsTakeNoMemory(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	conn := attachTo(t, a)
	const size = 1 << 20
	// kept returns a descriptor of the region: this process is the nodes' supervisor as well, which
	// keeps one for the next core, and gets it beside the answer.
	kept := func() (fd int) {
		t.Helper()
		daemontest.Eventually(t, "there is a descriptor of the region", func() error {
			list, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				return err
			}
			for _, e := range list {
				n, err := strconv.Atoi(e.Name())
				var st unix.Stat_t
				if err == nil && unix.Fstat(n, &st) == nil && st.Size >= size && st.Size < 2*size && st.Blocks*512 >= size {
					fd, err = unix.FcntlInt(uintptr(n), unix.F_DUPFD_CLOEXEC, 0)
					return err
				}
			}
			return errors.New("none of its size")
		})
		return fd
	}
	r, err := conn.AllocRegion(t.Context(), size)
	if err != nil {
		t.Fatal(err)
	}
	fd := kept()
	defer func() { _ = unix.Close(fd) }()
	if err := r.Free(); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the memory is given back", func() error {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Blocks > 0 {
			return fmt.Errorf("%d bytes are left: %v", st.Blocks*512, err)
		}
		return nil
	})
}

// The context's end ends a call whose handler goes on, and the region's memory stays
// until it has returned.
func TestRegionsAndDeadlines(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	conn := attachTo(t, a)
	srv, err := server.Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	open, begun, ended := make(chan struct{}), make(chan struct{}, 64), make(chan error, 64)
	err = srv.Handle("t", "late", func(c *server.Call) error {
		begun <- struct{}{}
		<-open
		_, err := c.Region(0).WriteAt([]byte("late"), 0)
		ended <- err
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		_ = srv.Serve(context.Background())
		close(over)
	}()
	defer func() {
		_ = srv.Close()
		<-over
	}()
	var m *client.Method
	daemontest.Eventually(t, "look up late", func() (err error) {
		m, err = conn.Method(t.Context(), "b/t/late")
		return err
	})
	r, err := conn.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.Ref(0, 8, client.MayWrite)
	if err != nil {
		t.Fatal(err)
	}
	// The first use of the region tells the other node of it.
	daemontest.InTime(t, "a handler that begins before the deadline", func(ctx context.Context) bool {
		if _, err := m.CallRegions(ctx, nil, ref); !errors.Is(err, client.ErrDeadline) {
			t.Fatalf("the call: %v", err)
		}
		return len(begun) > 0
	})
	close(open)
	if err := <-ended; err != nil {
		t.Errorf("the handler: %v", err)
	}
	if string(r.Bytes()[:4]) != "late" {
		t.Errorf("the region has %q", r.Bytes()[:4])
	}
}

// Close does not wait for a node that does not answer whether it knows a region now.
func TestCloseWhileARegionIsExported(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	c := attachTo(t, a)
	fillers(t, b, c)
	r, err := c.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := r.Ref(0, 8, client.MayWrite)
	if err != nil {
		t.Fatal(err)
	}
	resume, err := b.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := resume(); err != nil {
			t.Error(err)
		}
	}()
	called := make(chan error, 1)
	go func() {
		_, err := c.CallRegions(t.Context(), "b/t/fill", []byte("x"), ref)
		called <- err
	}()
	daemontest.Eventually(t, "the node is asked", func() error {
		stacks := make([]byte, 1<<20)
		if !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*Region).Export") {
			return errors.New("nobody exports")
		}
		return nil
	})
	start := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Close took %v", took)
	}
	if err := <-called; !errors.Is(err, client.ErrClosed) {
		t.Error(err)
	}
}

// Callers that do not wait for regions leave no more and more goroutines behind while the daemon stands still.
func TestRegionsOfStandingDaemon(t *testing.T) {
	_, b := daemontest.Pair(t, "")
	c := attachTo(t, b)
	resume, err := b.StopCore()
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for range 500 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
		if _, err := c.AllocRegion(ctx, 4096); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, client.ErrDeadline) {
			t.Errorf("a region of a daemon that stands still: %v", err)
		}
		cancel()
	}
	if n := runtime.NumGoroutine() - before; n > 100 {
		t.Errorf("%d goroutines are left", n)
	}
	if err := resume(); err != nil {
		t.Fatal(err)
	}
	r, err := c.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Free(); err != nil {
		t.Error(err)
	}
}

// The bytes of a region are no more when its connection is closed.
func TestRegionBytesAfterClose(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	c := attachTo(t, a)
	r, err := c.AllocRegion(t.Context(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Bytes()) != 4096 {
		t.Fatalf("%d bytes", len(r.Bytes()))
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if b := r.Bytes(); b != nil {
		t.Errorf("%d bytes", len(b))
	}
	if err := r.Free(); err != nil {
		t.Error(err)
	}
}
