package daemon

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel gives up a peer that acknowledges nothing as soon as one that is idle.
func TestWatchPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	tcp := conn.(*net.TCPConn)
	if err := watchPeer(tcp); err != nil {
		t.Fatal(err)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[int]int{unix.TCP_USER_TIMEOUT: 11000, unix.TCP_KEEPIDLE: 5, unix.TCP_KEEPINTVL: 2, unix.TCP_KEEPCNT: 3} {
		got := -1
		if cerr := raw.Control(func(fd uintptr) { got, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
		if got != want {
			t.Errorf("option %d is %d, want %d", name, got, want)
		}
	}
}
