package observe

import (
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// busyPage is a page whose answers never end; /kept keeps its connection. They have all the time of a test.
func busyPage(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patient))
	if r.URL.Path == "/kept" {
		Keep(r)
	}
	for chunk := make([]byte, 64<<10); ; {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// Connections whose clients do not read their answers do not keep a probe out: the one that
// has not for longest makes room for it, unless it is kept.
func TestUnreadAnswersMakeRoom(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, r := New(Options{Source: newFake(t), Page: http.HandlerFunc(busyPage)}), newRoom(l, maxConns)
	done := make(chan error, 1)
	go func() { done <- s.without.Serve(brief{r}) }()
	defer func() {
		if err := errors.Join(s.Close(), <-done); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	var name [maxConns]string
	for i := range name {
		c, path, want := dial(t, l.Addr()), "/", works
		if i == 0 {
			path, want = "/kept", kept
		}
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		name[i] = c.LocalAddr().String()
		for end := time.Now().Add(patient); doings(r)[name[i]] != want; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("a request is not served")
			}
		}
	}
	admitted(t, l.Addr()) // before those end by themselves, as the last one says
	switch now := doings(r); {
	case now[name[0]] != kept:
		t.Error("the one that is kept was ended")
	case now[name[1]] == works:
		t.Error("the one that was busy for longest was not ended")
	case now[name[maxConns-1]] != works:
		t.Error("the one that was busy for the shortest time was ended")
	}
}

// brief is a listener whose connections have small buffers: what is not read fills them soon.
type brief struct{ *room }

func (l brief) Accept() (net.Conn, error) {
	c, err := l.room.Accept()
	if err == nil {
		err = c.(*guest).Conn.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}

// pairs has a room let n connections in, and returns its ends of them.
func pairs(t *testing.T, r *room, n int) []*guest {
	t.Helper()
	list := make([]*guest, n)
	for i := range list {
		dial(t, r.Addr())
		c, err := r.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		list[i] = c.(*guest)
	}
	return list
}

// local returns a room of its own on a listener.
func local(t *testing.T, most int) *room {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := newRoom(l, most)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// A connection that has just come has time for its first request, and the others that are
// busy make room.
func TestNewcomersHaveTimeForTheirRequest(t *testing.T) {
	r := local(t, 4)
	r.settle, r.busy = patient, time.Nanosecond
	list := pairs(t, r, 4)
	for _, g := range list[1:] {
		note(g, http.StateActive)
	}
	pairs(t, r, 1)
	now := doings(r)
	if _, ok := now[list[0].RemoteAddr().String()]; !ok {
		t.Error("one without a request yet was ended")
	}
	if _, ok := now[list[1].RemoteAddr().String()]; ok {
		t.Error("the one that was busy for longest was not ended")
	}
}

// A connection that has its next request at once, whenever it has an answer, makes room for
// one who waits.
func TestRestOfNoTimeMakesRoom(t *testing.T) {
	r := local(t, 1)
	r.busy = patient
	first := pairs(t, r, 1)[0]
	note(first, http.StateActive)
	dial(t, r.Addr())
	entered := make(chan error, 1)
	go func() {
		c, err := r.Accept()
		if err == nil {
			err = c.Close()
		}
		entered <- err
	}()
	for end := time.Now().Add(patient); ; runtime.Gosched() {
		r.mu.Lock()
		waiting := r.waiting
		r.mu.Unlock()
		if waiting > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
	note(first, http.StateIdle)
	note(first, http.StateActive)
	select {
	case err := <-entered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patient / 2):
		t.Fatal("not let in")
	}
}
