package observe

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A connection whose client asks and does not read the answers ends, whatever it asks; if the
// answers are short, sooner.
func TestUnreadAnswersEndTheConnection(t *testing.T) {
	for _, path := range []string{"/nothing", "/metrics", "/healthz", "/"} {
		t.Run(strings.Trim(path, "/"), func(t *testing.T) {
			t.Parallel()
			s := New(Options{Source: newFake(t)})
			long := path == "/metrics"
			if long {
				s.without.WriteTimeout = 100 * time.Millisecond // else it takes that long
			}
			// Not TCP: the kernel drops packets for a full socket together with what they
			// acknowledge, and then the server may get no more requests, and rest.
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
			if err != nil {
				t.Fatal(err)
			}
			closed := make(chan struct{})
			served := make(chan error, 1)
			at := &watched{Listener: l, closed: closed}
			go func() { served <- s.Serve(at, false) }()
			c := dial(t, l.Addr())
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				ask := []byte(strings.Repeat("GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n", 64))
				var err error
				for err == nil {
					_, err = c.Write(ask)
				}
			}()
			select {
			case <-closed:
				if given := time.Duration(at.given.Load()); !long && (given <= 0 || given > shortTimeout) {
					t.Errorf("it had %v", given)
				}
			case <-time.After(patient):
				t.Error("the server still waits for its client to read")
			}
			// The client may not hear of it: it is not told while it does not read.
			if err := errors.Join(c.Close(), s.Close(), <-served); err != nil {
				t.Error(err)
			}
			<-asked
		})
	}
}

// watched is a listener that says when a connection of it was closed.
type watched struct {
	net.Listener
	closed chan struct{}
	// given is for how long the server has last let the connection write, in nanoseconds.
	given atomic.Int64
}

func (l *watched) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: c, given: &l.given, done: sync.OnceFunc(func() { close(l.closed) })}, nil
}

type watchedConn struct {
	net.Conn
	given *atomic.Int64
	done  func()
}

func (c *watchedConn) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() {
		c.given.Store(int64(time.Until(t)))
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *watchedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}
