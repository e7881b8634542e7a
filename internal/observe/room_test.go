package observe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// patient is how long tests wait for what must come.
const patient = time.Minute

// dial connects to a server, and ends the connection with the test.
func dial(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patient)); err != nil {
		t.Fatal(err)
	}
	return c
}

// probe makes a request by a connection, which stays open, and returns the status.
func probe(c net.Conn) (int, error) {
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, errors.Join(err, r.Body.Close())
}

// admitted connects and makes a request, again where the server has lost patience with a test
// that was held up in between.
func admitted(t *testing.T, addr net.Addr) net.Conn {
	t.Helper()
	for end := time.Now().Add(patient); ; {
		c := dial(t, addr)
		code, err := probe(c)
		if err == nil && code == 200 {
			return c
		}
		if time.Now().After(end) {
			t.Fatalf("not let in: %d, %v", code, err)
		}
	}
}

// isOpen reports whether the server has not ended a connection: a further request is answered.
func isOpen(c net.Conn) bool {
	code, err := probe(c)
	return err == nil && code == 200
}

// listening starts a server, and returns where.
func listening(t *testing.T, s *Server) net.Addr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l, false) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return l.Addr()
}

// doings returns what the connections of a room do, by the addresses of their clients.
func doings(r *room) map[string]doing {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[string]doing, len(r.guests))
	for _, g := range r.guests {
		m[g.RemoteAddr().String()] = g.does
	}
	return m
}

// awaitRest waits until the connection, which has had an answer, rests: a client has its
// answer before the server knows that the connection rests.
func awaitRest(t *testing.T, r *room, c net.Conn) {
	t.Helper()
	for end := time.Now().Add(patient); ; runtime.Gosched() {
		if doings(r)[c.LocalAddr().String()] == rests {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a connection that has had its answer does not rest")
		}
	}
}

// As many connections as there may be, which have had their answer and stay, do not keep a
// probe out; the one that has rested longest makes room for it.
func TestRestingConnectionsMakeRoom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, r := New(Options{Source: newFake(t)}), newRoom(l, maxConns)
	done := make(chan error, 1)
	go func() { done <- s.without.Serve(r) }()
	defer func() {
		if err := errors.Join(s.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	conns := make([]net.Conn, maxConns)
	for i := range conns {
		conns[i] = admitted(t, l.Addr())
		awaitRest(t, r, conns[i])
	}
	admitted(t, l.Addr())
	if isOpen(conns[0]) {
		t.Error("the connection that has rested longest is still there")
	}
	if !isOpen(conns[maxConns-1]) {
		t.Error("the connection that had a request last was ended")
	}
}

// Connections that say nothing do not keep a probe out either.
func TestSilentConnectionsMakeRoom(t *testing.T) {
	addr := listening(t, New(Options{Source: newFake(t)}))
	for range 2 * maxConns {
		dial(t, addr)
	}
	admitted(t, addr)
}

// A connection with a request under way is not ended for a newcomer, who waits until one
// rests.
func TestOnlyRestingConnectionsAreEnded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRoom(l, 2)
	defer r.Close()
	r.busy = patient
	var far, near [2]net.Conn
	for i := range near {
		far[i] = dial(t, l.Addr())
		if near[i], err = r.Accept(); err != nil {
			t.Fatal(err)
		}
		defer near[i].Close()
		note(near[i], http.StateActive)
	}
	dial(t, l.Addr())
	entered := make(chan error, 1)
	go func() {
		c, err := r.Accept()
		if err == nil {
			defer c.Close()
			if r.mu.Lock(); len(r.guests) != 2 {
				err = fmt.Errorf("%d connections where 2 may be", len(r.guests))
			}
			r.mu.Unlock()
		}
		entered <- err
	}()
	note(near[1], http.StateIdle)
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	if _, err := far[1].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the one that rested: %v", err)
	}
	if _, err := near[0].Write([]byte("x")); err != nil {
		t.Errorf("the one that did not rest: %v", err)
	}
	if _, err := io.ReadFull(far[0], make([]byte, 1)); err != nil {
		t.Errorf("the one that did not rest: %v", err)
	}
}

// Closing ends the wait of one who finds no place.
func TestCloseEndsWaitForRoom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRoom(l, 1)
	r.busy = patient
	dial(t, l.Addr())
	first, err := r.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	note(first, http.StateActive)
	dial(t, l.Addr())
	ended := make(chan error, 1)
	go func() {
		_, err := r.Accept()
		ended <- err
	}()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Fatal("Accept still waits")
	}
}
