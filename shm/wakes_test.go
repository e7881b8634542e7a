package shm_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// sleepers are threads of which each sleeps on a word of its own while it is 0.
type sleepers struct {
	words []atomic.Uint32
	tids  []atomic.Int64
	awake sync.WaitGroup
}

// fallAsleep starts n of them, and returns when all sleep.
func fallAsleep(t *testing.T, n int) *sleepers {
	t.Helper()
	s := &sleepers{words: make([]atomic.Uint32, n), tids: make([]atomic.Int64, n)}
	for i := range n {
		s.awake.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			s.tids[i].Store(int64(unix.Gettid()))
			for s.words[i].Load() == 0 {
				shm.FutexWait(&s.words[i], 0, hang)
			}
		})
	}
	for i := range n {
		eventually(t, "sleep in a futex call", func() bool {
			call, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", s.tids[i].Load()))
			number, _, _ := strings.Cut(string(call), " ")
			// The kernel itself goes on with one that a signal has interrupted.
			return number == strconv.Itoa(unix.SYS_FUTEX) || number == strconv.Itoa(unix.SYS_RESTART_SYSCALL)
		})
	}
	return s
}

// wake wakes them all with one Flush, and returns when they are awake: none sleeps for less than hang otherwise.
func (s *sleepers) wake(w *shm.Wakes) {
	for i := range s.words {
		s.words[i].Store(1)
		w.Add(&s.words[i])
	}
	w.Flush()
	s.awake.Wait()
}

func closes(t *testing.T, w *shm.Wakes) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

const noRings = "no io_uring that can wake: that needs Linux 6.7, kernel.io_uring_disabled=0 (sysctl), and no seccomp filter against it"

// newRings returns a Wakes with an io_uring.
func newRings(t *testing.T) *shm.Wakes {
	t.Helper()
	w := shm.NewWakes()
	t.Cleanup(func() { closes(t, w) })
	if !w.Rings() {
		t.Skip(noRings)
	}
	return w
}

func TestWakes(t *testing.T) {
	for _, n := range []int{1, 2, 3, 64, 65, 67} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Run("pairs", func(t *testing.T) { fallAsleep(t, n).wake(new(shm.Wakes)) })
			t.Run("ring", func(t *testing.T) {
				w := newRings(t)
				for range 2 {
					fallAsleep(t, n).wake(w)
				}
				if !w.Rings() {
					t.Error("it has given up its io_uring")
				}
			})
		})
	}
	new(shm.Wakes).Flush()
}

// Pages are sent with the wakes, and one that cannot be is no reason to give up the io_uring.
func TestWakesWithPages(t *testing.T) {
	for name, w := range map[string]*shm.Wakes{"pairs": new(shm.Wakes), "ring": shm.NewWakes()} {
		t.Run(name, func(t *testing.T) {
			defer closes(t, w)
			if name == "ring" && !w.Rings() {
				t.Skip(noRings)
			}
			gone, reader := newPager(t)
			shm.CloseFDs([]int{reader})
			defer gone.Close()
			full, _ := pages(t)
			one, first := pages(t)
			two, second := pages(t)
			for range 4000 { // more than the buffer of a socket holds
				full.Page()
			}
			for range 200 { // each has two failures: more than an io_uring keeps
				var waiters sync.WaitGroup
				for _, r := range []*shm.Pages{first, second} {
					waiters.Go(func() {
						if err := r.Wait(); err != nil {
							t.Error(err)
						}
					})
				}
				s := &sleepers{words: make([]atomic.Uint32, 1)}
				s.awake.Go(func() { shm.FutexWait(&s.words[0], 0, hang) })
				for _, p := range []*shm.Pager{one, gone, full, two} {
					w.AddPage(p)
				}
				s.wake(w)
				waiters.Wait()
			}
			if name == "ring" && !w.Rings() {
				t.Error("it has given up its io_uring")
			}
		})
	}
}

// All are awake even if the kernel does not do what it was asked for, and later ones are woken without it.
func TestWakesGoOnWithoutRing(t *testing.T) {
	w := newRings(t)
	dir, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range dir {
		if to, _ := os.Readlink(name); to != "anon_inode:[io_uring]" {
			continue
		}
		fd, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Dup3(null, fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := unix.Close(null); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		fallAsleep(t, 70).wake(w)
		if w.Rings() {
			t.Fatal("it took another file for its io_uring")
		}
	}
}

// Whoever has made a word one that the kernel does not wake does not take the io_uring from the others, who wake up.
func TestWakesBesideLock(t *testing.T) {
	for name, w := range map[string]*shm.Wakes{"pairs": new(shm.Wakes), "ring": shm.NewWakes()} {
		t.Run(name, func(t *testing.T) {
			defer closes(t, w)
			if name == "ring" && !w.Rings() {
				t.Skip(noRings)
			}
			locked := new(atomic.Uint32)
			lockPI(t, locked)
			for n := range 5 {
				s := fallAsleep(t, 4)
				for range n {
					w.Add(locked)
				}
				s.wake(w)
				for range n { // also after the others
					w.Add(locked)
				}
				w.Flush()
			}
			if name == "ring" && !w.Rings() {
				t.Error("it has given up its io_uring")
			}
		})
	}
}

// A word that is no memory any more is no reason not to wake the others.
func TestWakesBesideBadAddress(t *testing.T) {
	w := newRings(t)
	s := fallAsleep(t, 5)
	gone, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	w.Add(shm.Uint32At(gone, 0))
	if err := unix.Munmap(gone); err != nil {
		t.Fatal(err)
	}
	s.wake(w)
	fallAsleep(t, 5).wake(w)
}

// Everybody's wakes take no memory once it has as much as it takes.
func TestWakesAllocateNothing(t *testing.T) {
	for name, w := range map[string]*shm.Wakes{"pairs": new(shm.Wakes), "ring": shm.NewWakes()} {
		words := make([]atomic.Uint32, 100)
		if n := testing.AllocsPerRun(100, func() {
			for i := range words {
				w.Add(&words[i])
			}
			w.Flush()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		closes(t, w)
	}
}
