package shm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A segment for which there is enough memory is made, and one that is a page larger is refused, by the name of what says so.
func TestCreateWithinWhatIsAvailable(t *testing.T) {
	page := os.Getpagesize()
	n := prefaultChunk + 3*page // more than one call
	options := CreateOptions{Name: "test", Kind: KindTest, Size: n, Available: func() (uint64, string) { return uint64(n), "the test" }}
	for range 2 { // what was made is not counted any more
		s, err := Create(options)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	options.Size += page
	if _, err := Create(options); !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "the test leaves") {
		t.Errorf("a page more: %v", err)
	}
	// Huge pages are no part of it, and ordinary ones in their place are.
	options.Hugepages = HugepagesTry
	if s, err := Create(options); err == nil {
		if !s.Huge() {
			t.Error("made of ordinary pages")
		}
		_ = s.Close()
	} else if !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
	if promised.bytes != 0 {
		t.Errorf("%d bytes are promised", promised.bytes)
	}
}

// Nothing is asked of the kernel for a segment that is refused.
func TestRefusedSegmentTakesNothing(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	taken := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	const n = 1 << 20
	room := func() (uint64, string) { return n, "the test" }
	if err := takePages(fd, n+os.Getpagesize(), room); !errors.Is(err, unix.ENOMEM) || taken() != 0 {
		t.Errorf("a page more: %v, and it has %d bytes", err, taken())
	}
	if err := takePages(fd, n, room); err != nil || taken() < n {
		t.Errorf("%v, and it has %d bytes", err, taken())
	}
}

// Of segments that are made at once each is told what the others leave, as far as they have not got it yet.
func TestPromisesAtOnce(t *testing.T) {
	room := func() (uint64, string) { return 100, "the test" }
	first, err := promiseMemory(60, room)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := promiseMemory(41, room); !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "leaves 40 bytes") {
		t.Errorf("beside it: %v", err)
	}
	second, err := promiseMemory(40, room)
	if err != nil {
		t.Fatal(err)
	}
	first.less(20)
	if p, err := promiseMemory(20, room); err != nil {
		t.Errorf("when the kernel has given some of it, which the room is to tell: %v", err)
	} else {
		p.end()
	}
	first.end()
	second.end()
	if promised.bytes != 0 {
		t.Errorf("%d bytes are promised", promised.bytes)
	}
}

// What is made by CreateSealed is a promise, too, until the kernel has given it.
func TestSealedIsPromised(t *testing.T) {
	asked := 0
	room := func() (uint64, string) { asked++; return 100, "the test" }
	other, err := promiseMemory(60, room)
	if err != nil {
		t.Fatal(err)
	}
	if fd, err := CreateSealed("test", make([]byte, 41), room); !errors.Is(err, unix.ENOMEM) {
		CloseFDs([]int{fd})
		t.Errorf("beside what is being made: %v", err)
	}
	other.end()
	fd, err := CreateSealed("test", make([]byte, 41), room)
	if err != nil {
		t.Fatal(err)
	}
	CloseFDs([]int{fd})
	if promised.bytes != 0 || asked != 3 {
		t.Errorf("%d bytes are promised, and the room was looked at %d times", promised.bytes, asked)
	}
}

// Huge pages that are to be left are not asked of the kernel.
func TestHugePagesAreLeft(t *testing.T) {
	few := func() (uint64, string) { return hugepageSize - 1, "the test" }
	options := CreateOptions{Name: "test", Kind: KindTest, Size: HeaderSize + 1, Hugepages: HugepagesRequire, HugeAvailable: few}
	if _, err := Create(options); !errors.Is(err, unix.ENOMEM) || !strings.Contains(err.Error(), "the test leaves") {
		t.Errorf("one that is required: %v", err)
	}
	options.Hugepages = HugepagesTry
	s, err := Create(options)
	if err != nil {
		t.Fatal(err)
	}
	if s.Huge() || len(s.Bytes()) != Whole(options.Size, false) {
		t.Errorf("huge: %v, %d bytes", s.Huge(), len(s.Bytes()))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := enoughHuge(hugepageSize-1, few); err != nil {
		t.Errorf("as many as there are: %v", err)
	}
}
