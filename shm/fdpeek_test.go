package shm_test

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
)

// What was only looked at is there all the same, and what comes of it is the reader's own; so is what there was no room for.
func TestPeekFDs(t *testing.T) {
	a, b := socketPair(t)
	seg := testSegment(t)
	before := leaktest.Descriptors(t)
	if err := shm.SendFDs(a, []byte("hello"), seg.FD(), seg.FD()); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	for try, receive := range []func() (int, []int, error){
		func() (int, []int, error) { return shm.PeekFDs(b, buf) },
		func() (int, []int, error) {
			var limit unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
				t.Fatal(err)
			}
			low := limit
			low.Cur = 3
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
				t.Fatal(err)
			}
			n, fds, err := shm.PeekFDs(b, buf)
			if !errors.Is(err, shm.ErrFDsLost) || string(buf[:n]) != "hello" || len(fds) != 0 {
				t.Errorf("without room: %q, %d descriptors, %v", buf[:n], len(fds), err)
			}
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
				t.Fatal(err)
			}
			return shm.PeekFDs(b, buf)
		},
		func() (int, []int, error) { return shm.RecvFDs(b, buf) },
	} {
		n, fds, err := receive()
		if err != nil || string(buf[:n]) != "hello" || len(fds) != 2 {
			t.Fatalf("try %d: %q, %d descriptors, %v", try, buf[:n], len(fds), err)
		}
		for _, fd := range fds {
			s, err := shm.Map(fd, shm.KindTest, testSize) // which leaves fd
			if err != nil {
				t.Fatal(err)
			}
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor %d: flags %#x, %v: not close-on-exec", fd, flags, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		shm.CloseFDs(fds)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := shm.PeekFDs(b, buf); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if after := leaktest.Descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
