package shm_test

import (
	"bytes"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// Whoever fills the counter keeps nobody from being woken: who waits for edges gets one for
// each ring.
func TestFullBellRings(t *testing.T) {
	b, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epfd)
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, b.FD(), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET}); err != nil {
		t.Fatal(err)
	}
	full := append([]byte{0xfe}, bytes.Repeat([]byte{0xff}, 7)...) // the most that it can count
	for range 3 {
		b.Silence()
		if _, err := shm.WriteFD(b.FD(), full); err != nil {
			t.Fatal(err)
		}
		events := make([]unix.EpollEvent, 1)
		if n, err := shm.EpollWait(epfd, events, time.Second); n != 1 || err != nil {
			t.Fatalf("the counter is filled: %d events, %v", n, err)
		}
		b.Ring()
		if n, err := shm.EpollWait(epfd, events, time.Second); n != 1 || err != nil {
			t.Errorf("a ring of a full bell: %d events, %v", n, err)
		}
	}
}
