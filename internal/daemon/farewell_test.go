package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
)

// A core that stops does not wait for a worker that does not read.
func TestFarewellToADeafWorker(t *testing.T) {
	for range 5 { // in case this stands still meanwhile
		if farewellIsBrief(t) {
			return
		}
	}
	t.Error("the connection is not closed")
}

// farewellIsBrief reports whether the connection with a worker that does not read is closed sooner than a message that waits for
// the worker fails.
func farewellIsBrief(t *testing.T) bool {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fds[1]) }()
	for err == nil {
		_, err = unix.Write(fds[0], make([]byte, 100))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "worker")
	sock, err := net.FileConn(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	conn := attach.NewConn(sock.(*net.UnixConn))
	ctx, stop := context.WithCancel(context.Background())
	c := &conductor{ctx: ctx}
	c.farewell(conn)
	// A message that waits for the worker takes 5 s to fail.
	end := time.Now().Add(3 * time.Second)
	stop()
	p := []unix.PollFd{{Fd: int32(fds[1]), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 3000)
	for errors.Is(err, unix.EINTR) && time.Now().Before(end) {
		n, err = unix.Poll(p, int(time.Until(end).Milliseconds())+1)
	}
	if err != nil && !errors.Is(err, unix.EINTR) {
		t.Fatal(err)
	}
	return n == 1 && time.Now().Before(end)
}
