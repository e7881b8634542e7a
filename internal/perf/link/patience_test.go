package link

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// pipe returns both ends of a link without a network, for a clock that is not that of the machine.
func pipe(t *testing.T) (a, b *Link) {
	t.Helper()
	x, y := net.Pipe()
	done := make(chan *Link)
	greets := func(conn net.Conn) *Link {
		l, err := greet(context.Background(), conn, func(*bufio.Reader) (Greeting, error) { return usual, nil })
		if err != nil {
			t.Error(err)
		}
		return l
	}
	go func() { done <- greets(y) }()
	a = greets(x)
	return a, <-done
}

// Whoever waits for a message of a side that lives and says nothing ends after Patience, and no
// earlier; one that says that it is at work is waited for.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe(t)
		begun := time.Now()
		if _, err := a.Next(t.Context()); !errors.Is(err, ErrSilent) || errors.Is(err, ErrLost) {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took != Patience {
			t.Errorf("it took %v", took)
		}

		const hours = 3
		begun = time.Now()
		go func() {
			for time.Since(begun) < hours*time.Hour {
				time.Sleep(Patience / 2)
				if err := b.Alive(); err != nil {
					t.Error(err)
				}
			}
		}()
		if _, err := a.Next(t.Context()); !errors.Is(err, ErrSilent) {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took < hours*time.Hour+Patience || took > hours*time.Hour+3*Patience {
			t.Errorf("a side at work for %d hours was waited for %v", hours, took)
		}
		if a.News() || a.Heard() == 0 {
			t.Errorf("being at work is news: %v, heard of %d times", a.News(), a.Heard())
		}
		must(t, errors.Join(a.Close(), b.Close()))
	})
}

// A side that takes nothing is given up by who has something to say.
func TestTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := net.Pipe()
		l, err := greet(context.Background(), x, func(*bufio.Reader) (Greeting, error) { return usual, nil })
		must(t, err)
		begun := time.Now()
		if err := l.Send("question", number{1}); !errors.Is(err, ErrLost) || time.Since(begun) > sendTime+5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		must(t, errors.Join(y.Close(), l.Close()))
	})
}

// A server that does not greet is told apart from one that is not there.
func TestUngreeted(t *testing.T) {
	if err := ungreeted(os.ErrDeadlineExceeded); !errors.Is(err, ErrSilent) {
		t.Error(err)
	}
	if err := ungreeted(unix.ECONNRESET); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	var broken *ProtocolError
	if err := ungreeted(protocolError("x")); !errors.As(err, &broken) {
		t.Error(err)
	}
}

// The kernel is told to miss a machine that is gone without a word within KeepAlive: whether bytes
// are on their way to it or not.
func TestKeepAlive(t *testing.T) {
	s, c := pair(t)
	for name, l := range map[string]*Link{"server": s, "client": c} {
		raw, err := l.conn.(*net.TCPConn).SyscallConn()
		must(t, err)
		option := func(level, opt int) (value int) {
			var failed error
			must(t, raw.Control(func(fd uintptr) { value, failed = unix.GetsockoptInt(int(fd), level, opt) }))
			must(t, failed)
			return value
		}
		if option(unix.SOL_SOCKET, unix.SO_KEEPALIVE) == 0 {
			t.Errorf("%s: no keep-alive", name)
		}
		idle, interval, count := option(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), option(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
		if missed := time.Duration(idle+interval*count) * time.Second; missed > KeepAlive {
			t.Errorf("%s: without bytes on their way it is missed after %v, want %v", name, missed, KeepAlive)
		}
		if missed := time.Duration(option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)) * time.Millisecond; missed == 0 || missed > KeepAlive {
			t.Errorf("%s: with bytes on their way it is missed after %v, want %v", name, missed, KeepAlive)
		}
	}
	if err := lost(&net.OpError{Op: "read", Err: unix.ETIMEDOUT}); !errors.Is(err, ErrLost) {
		t.Error(err)
	}
}
