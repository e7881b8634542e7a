package shm_test

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// Everybody who maps a segment finds all of its pages in its own page table: the messages that
// reach a page first do not pay for a page fault each.
func TestFirstTouchesCostNothing(t *testing.T) {
	page := os.Getpagesize()
	switch err := unix.Madvise(mapped(t, page), unix.MADV_POPULATE_READ); {
	case errors.Is(err, unix.EINVAL):
		t.Skip("this kernel does not know MADV_POPULATE_READ, and segments work without: Linux 5.14 or later does")
	case err != nil:
		t.Fatal(err)
	}
	const pages = 512
	size := pages * page
	made, err := shm.Create(shm.CreateOptions{Name: "rdmad-test", Kind: shm.KindLane, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	opened, err := shm.Open(dup(t, made.FD()), shm.KindLane, size)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	adopted, err := shm.Adopt(dup(t, made.FD()), size)
	if err != nil {
		t.Fatal(err)
	}
	defer adopted.Close()

	for _, c := range []struct {
		name string
		mem  []byte
	}{{"made", made.Bytes()}, {"opened", opened.Bytes()}, {"adopted", adopted.Bytes()}} {
		// A collection or a signal may fault on this thread, too: for a page or ten.
		if n := faultsOf(t, c.mem, page); n > pages/8 {
			t.Errorf("%s: %d faults for the first writes to %d pages", c.name, n, pages)
		}
	}
	if n := faultsOf(t, mapped(t, size), page); n < pages/2 {
		t.Errorf("%d faults for the first writes to %d pages that nobody has looked after: they are not counted here", n, pages)
	}
}

// mapped returns n bytes of new memory.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE) // one fault for each page, whatever the machine prefers
	return mem
}

// faultsOf writes to each page of mem and counts the faults of the thread meanwhile.
func faultsOf(t *testing.T, mem []byte, page int) int64 {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &before); err != nil {
		t.Fatal(err)
	}
	for i := page - 1; i < len(mem); i += page {
		mem[i] = 1
	}
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &after); err != nil {
		t.Fatal(err)
	}
	return after.Minflt - before.Minflt
}
