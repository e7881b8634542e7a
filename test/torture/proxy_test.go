package main

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// wired returns a proxy, and both ends of a connection through it.
func wired(t *testing.T) (p *proxy, near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if p, err = newProxy("test", "127.0.0.1:0", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	near, far = c.(*net.TCPConn), s.(*net.TCPConn)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	say(t, near, far, "there")
	say(t, far, near, "and back")
	return p, near, far
}

// say writes something at one end and reads it at the other.
func say(t *testing.T, from, to *net.TCPConn, text string) {
	t.Helper()
	if _, err := from.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	hear(t, to, text)
}

func hear(t *testing.T, c *net.TCPConn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Minute))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("%q, %v, want %q", b, err, text)
	}
}

// ended returns how a connection ends.
func ended(t *testing.T, c *net.TCPConn) error {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Minute))
	_, err := c.Read(make([]byte, 1))
	return err
}

func TestProxyReset(t *testing.T) {
	p, near, far := wired(t)
	if n := p.reset(); n != 1 {
		t.Errorf("%d connections were reset", n)
	}
	for _, c := range []*net.TCPConn{near, far} {
		if err := ended(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("it ended with %v", err)
		}
	}
	if h := p.heard(); len(h) == 0 || string(h[len(h)-1]) != "there" {
		t.Errorf("it has heard %q", h)
	}
}

func TestProxyHalfClose(t *testing.T) {
	p, near, far := wired(t)
	p.halfClose(true)
	if err := ended(t, near); !errors.Is(err, io.EOF) {
		t.Errorf("it ended with %v", err)
	}
	say(t, near, far, "still there")
}

// A silence holds everything back, and loses nothing.
func TestProxySilence(t *testing.T) {
	p, near, far := wired(t)
	p.swallow(true)
	if _, err := near.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	_ = far.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	var timeout net.Error
	b := make([]byte, 10)
	if n, err := far.Read(b); n > 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%q, %v during a silence", b[:n], err)
	}
	p.swallow(false)
	hear(t, far, "late")
}

func TestProxySlow(t *testing.T) {
	p, near, far := wired(t)
	p.slow(20*time.Millisecond, 1)
	say(t, near, far, "x") // the read that was under way
	begin := time.Now()
	say(t, near, far, "12345")
	if d := time.Since(begin); d < 100*time.Millisecond {
		t.Errorf("five pieces took %v", d)
	}
}
