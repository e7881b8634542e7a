package shm_test

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
)

// copyAndClose is CopySealed of a descriptor that is not needed any more.
func copyAndClose(fd, most int) ([]byte, error) {
	defer unix.Close(fd)
	return shm.CopySealed(fd, most)
}

func TestSealed(t *testing.T) {
	before := leaktest.Descriptors(t)
	for _, n := range []int{0, 1, 4096, 3 << 20} {
		want := bytes.Repeat([]byte{7, 8, 9}, n/3+1)[:n]
		fd, err := shm.CreateSealed("test", want, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Pwrite(fd, []byte{1}, 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("writing: %v", err)
		}
		if err := unix.Ftruncate(fd, int64(n)+1); !errors.Is(err, unix.EPERM) {
			t.Errorf("growing: %v", err)
		}
		if got, err := copyAndClose(fd, n); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	fd, err := shm.CreateSealed("test", make([]byte, 100), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := copyAndClose(fd, 99); !errors.Is(err, shm.ErrBadSegment) {
		t.Errorf("more than wanted: %v", err)
	}
	// One that was taken back.
	if fd, err = shm.CreateSealed("test", make([]byte, 100), nil); err == nil {
		err = unix.Ftruncate(fd, 0)
	}
	if got, rerr := copyAndClose(fd, 100); err != nil || rerr != nil || len(got) != 0 {
		t.Errorf("%d bytes, %v, %v", len(got), err, rerr)
	}
	// One that its creator can still write to.
	if _, err := copyAndClose(memfd(t, 100, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL, nil), 100); !errors.Is(err, shm.ErrNotSealed) {
		t.Errorf("not sealed: %v", err)
	}
	p := make([]int, 2)
	if err := unix.Pipe2(p, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if _, err := copyAndClose(p[0], 100); !errors.Is(err, shm.ErrBadSegment) {
		t.Errorf("a pipe: %v", err)
	}
	if err := unix.Close(p[1]); err != nil {
		t.Error(err)
	}
	if after := leaktest.Descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
