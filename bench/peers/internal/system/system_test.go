package system

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/bench/content"
	"github.com/rdmad/rdmad/internal/leaktest"
)

// limit bounds what a test waits for.
const limit = 3 * time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestNamesDiffer(t *testing.T) {
	var names []string
	for _, s := range All {
		names = append(names, s.Name)
		if found, err := Find(s.Name); err != nil || found != s {
			t.Errorf("%s is not found: %v", s.Name, err)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(All) {
		t.Errorf("names are not unique: %q", names)
	}
	if err := Serve(t.Context(), "none", "service", ""); err == nil {
		t.Error("a system that does not exist serves")
	}
	if err := Serve(t.Context(), "tcp", "none", ""); err == nil {
		t.Error("a role that does not exist serves")
	}
}

func TestPageRequest(t *testing.T) {
	req := PageRequest(8192)
	StampPage(req, 77)
	if size, stamp, err := parsePage(req); err != nil || size != 8192 || stamp != 77 {
		t.Errorf("%d, %d, %v", size, stamp, err)
	}
	for _, bad := range [][]byte{nil, req[1:], append(req, 0), PageRequest(maxPage + 1)} {
		if _, _, err := parsePage(bad); err == nil {
			t.Errorf("% x: no error", bad)
		}
	}
}

func TestSheet(t *testing.T) {
	var s sheet
	for i, size := range []int{100, 100, 3, 9000} {
		p := s.page(4, size, uint64(i))
		if len(p) != 4+size || !content.Intact(p[4:], size, uint64(i)) {
			t.Errorf("page %d of %d bytes is wrong", i, size)
		}
	}
}

// serveHere runs the service of a raw socket in this process.
func serveHere(t *testing.T, coalesce bool) (address string) {
	t.Helper()
	address = filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serveSocket(ctx, "unix", address, coalesce) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return address
}

// dialHere waits for the service.
func dialHere(t *testing.T, address string, coalesce bool, n Need) *socket {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		s, err := dialSocket(t.Context(), "unix", address, coalesce, n)
		if err == nil {
			return s
		}
		if time.Since(begin) > limit {
			t.Fatal(err)
		}
	}
}

// More may be under way than the buffers of two sockets hold: neither end may wait for the other.
func TestSocketsHoldLess(t *testing.T) {
	const depth, size = 64, 32 << 10
	for _, coalesce := range []bool{false, true} {
		s := dialHere(t, serveHere(t, coalesce), coalesce, Need{Op: Echo, Depth: depth, Request: size, Answer: size})
		req := make([]byte, size)
		for round := range 3 {
			for i := range depth {
				content.Fill(req, uint64(round*depth+i))
				if err := s.Send(req); err != nil {
					t.Fatal(err)
				}
			}
			for i := range depth {
				answer, _, err := s.Receive()
				if err != nil || !content.Intact(answer, size, uint64(round*depth+i)) {
					t.Fatalf("answer %d is wrong: %v", i, err)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Posts are counted if they are whole.
func TestPosts(t *testing.T) {
	address := serveHere(t, true)
	s := dialHere(t, address, true, Need{Op: Post, Depth: 1, Request: 64})
	msg := make([]byte, 64)
	content.Fill(msg, 5)
	for range 10 {
		if err := s.Post(msg); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	// The same connection: what was sent before has been read.
	s.op = Count
	answer, err := Once(s, nil)
	if err != nil || len(answer) != countSize || binary.LittleEndian.Uint64(answer) != 10 {
		t.Errorf("count % x, %v", answer, err)
	}
	msg[0]++
	s.op = Post
	if err := s.Post(msg); err != nil {
		t.Fatal(err)
	}
	s.op = Count
	if answer, err := Once(s, nil); err == nil {
		t.Errorf("after a damaged post the count is % x", answer)
	}
	_ = s.Close()
}

// A service ends the connection of a client that sends nonsense.
func TestNonsense(t *testing.T) {
	address := serveHere(t, false)
	for _, nonsense := range [][]byte{
		{255, 255, 255, 255, 0},
		{0, 0, 0, 0, 9},
		{1, 0, 0, 0, byte(Page), 7},
	} {
		s := dialHere(t, address, false, Need{Op: Echo, Depth: 1})
		if _, err := s.conn.Write(nonsense); err != nil {
			t.Fatal(err)
		}
		if err := s.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.conn.Read(make([]byte, 1)); err != io.EOF {
			if ne, ok := err.(net.Error); !ok || ne.Timeout() {
				t.Errorf("% x: %v", nonsense, err)
			}
		}
		_ = s.Close()
	}
}

func TestOnceNeedsCalls(t *testing.T) {
	if _, err := Once(nobody{}, nil); err == nil {
		t.Error("a session without calls has made one")
	}
}

type nobody struct{}

func (nobody) Close() error { return nil }
