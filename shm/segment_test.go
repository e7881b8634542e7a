package shm_test

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
)

func dup(t *testing.T, fd int) int {
	t.Helper()
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCreateWritesTheHeaderByteByByte(t *testing.T) {
	s := testSegment(t)
	want := make([]byte, shm.HeaderSize)
	copy(want[0:], "RDMADSEG")
	copy(want[8:], []byte{99, 0, 0, 0})
	copy(want[16:], []byte{0, 0x30, 0, 0, 0, 0, 0, 0}) // 12288
	copy(want[64:], []byte{4, 0, 4, 0})                // version 4.4
	if got := s.Bytes()[:4096]; !bytes.Equal(got, want) {
		t.Errorf("header page is % x", got[:96])
	}
	if !bytes.Equal(s.Bytes()[4096:], make([]byte, 2*4096)) {
		t.Error("the rest of a new segment is not zero")
	}
	if shm.HeaderSize != 4096 || shm.ABIVersion != 0x40004 {
		t.Error("header size or ABI version changed")
	}
}

func TestSealedSegmentKeepsItsSize(t *testing.T) {
	s := testSegment(t)
	for _, size := range []int64{0, testSize - 1, testSize + 4096} {
		if err := unix.Ftruncate(s.FD(), size); !errors.Is(err, unix.EPERM) {
			t.Errorf("ftruncate to %d: %v, want EPERM", size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(s.FD()), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: %v, want EPERM", err)
	}
	if err := unix.Fallocate(s.FD(), 0, 0, 2*testSize); !errors.Is(err, unix.EPERM) {
		t.Errorf("fallocate beyond the end: %v, want EPERM", err)
	}
}

func TestCreatePrefaultsAndRoundsUp(t *testing.T) {
	for _, size := range []int{4096, 4097, 33<<20 + 1} {
		s, err := shm.Create(shm.CreateOptions{Name: "prefault", Kind: shm.KindTest, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		page := os.Getpagesize()
		want := (size + page - 1) / page * page
		if len(s.Bytes()) != want {
			t.Errorf("size %d: mapping of %d bytes, want %d", size, len(s.Bytes()), want)
		}
		var st unix.Stat_t
		if err := unix.Fstat(s.FD(), &st); err != nil {
			t.Fatal(err)
		}
		if st.Blocks*512 < int64(want) {
			t.Errorf("size %d: only %d of %d bytes are there", size, st.Blocks*512, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if s.Close() == nil {
			t.Error("a second Close reports nothing")
		}
	}
}

func TestCreateFailsCleanly(t *testing.T) {
	before := leaktest.Descriptors(t)
	for _, size := range []int{-1, 0, shm.HeaderSize - 1, 1 << 62} {
		if _, err := shm.Create(shm.CreateOptions{Name: "bad", Kind: shm.KindTest, Size: size}); err == nil {
			t.Errorf("size %d was accepted", size)
		}
	}
	if _, err := shm.Create(shm.CreateOptions{Name: strings.Repeat("x", 300), Kind: shm.KindTest, Size: testSize}); err == nil {
		t.Error("an overlong name was accepted")
	}
	if after := leaktest.Descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// Signals, of which the Go runtime sends many, interrupt the calls that make
// the pages.
func TestCreateUnderSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for last := time.Now(); !stop.Load(); {
			if time.Since(last) < 5*time.Millisecond {
				runtime.Gosched()
				continue
			}
			last = time.Now()
			if err := unix.Tgkill(os.Getpid(), thread, unix.SIGURG); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer wg.Wait()
	defer stop.Store(true)
	for range 5 {
		s, err := shm.Create(shm.CreateOptions{Name: "signals", Kind: shm.KindTest, Size: 48 << 20})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

func TestHugepages(t *testing.T) {
	before := leaktest.Descriptors(t)
	o := shm.CreateOptions{Name: "huge", Kind: shm.KindTest, Size: testSize, Hugepages: shm.HugepagesRequire}
	s, err := shm.Create(o)
	if err == nil {
		if !s.Huge() || len(s.Bytes())%(2<<20) != 0 {
			t.Errorf("huge %v, %d bytes", s.Huge(), len(s.Bytes()))
		}
		s.Close()
	} else if !strings.Contains(err.Error(), `(memory.hugepages = "require"; see `) || !strings.Contains(err.Error(), "vm.nr_hugepages") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	// More than any machine has: require fails, try makes ordinary pages if
	// the size is one that ordinary pages can have.
	o.Size = 1 << 50
	if s, err := shm.Create(o); err == nil {
		s.Close()
		t.Error("a petabyte of huge pages")
	}
	o.Size, o.Hugepages = testSize, shm.HugepagesTry
	s, err = shm.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	shm.Uint64At(s.Bytes(), len(s.Bytes())-8).Store(1)
	s.Close()
	if after := leaktest.Descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func TestOpenSharesMemory(t *testing.T) {
	s := testSegment(t)
	o, err := shm.Open(dup(t, s.FD()), shm.KindTest, testSize)
	if err != nil {
		t.Fatal(err)
	}
	shm.Uint64At(s.Bytes(), 8192).Store(42)
	if got := shm.Uint64At(o.Bytes(), 8192).Load(); got != 42 {
		t.Errorf("read %d", got)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// What is discarded takes no memory, whoever holds it, and is zero there.
func TestDiscard(t *testing.T) {
	s := testSegment(t)
	o, err := shm.Open(dup(t, s.FD()), shm.KindTest, testSize)
	if err != nil {
		t.Fatal(err)
	}
	shm.Uint64At(s.Bytes(), 8192).Store(42)
	if err := s.Discard(); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.FD(), &st); err != nil || st.Blocks != 0 || st.Size != int64(len(s.Bytes())) {
		t.Errorf("%d blocks, %d bytes: %v", st.Blocks, st.Size, err)
	}
	if got := shm.Uint64At(o.Bytes(), 8192).Load(); got != 0 {
		t.Errorf("read %d", got)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// memfd makes a memfd by hand, with a good header unless change spoils it.
func memfd(t *testing.T, size int64, seals int, change func(h []byte)) int {
	t.Helper()
	fd, err := unix.MemfdCreate("byhand", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	h := make([]byte, shm.HeaderSize)
	copy(h, "RDMADSEG")
	h[8], h[66] = 99, 4
	if change != nil {
		change(h)
	}
	if _, err := unix.Pwrite(fd, h, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestOpenRefuses(t *testing.T) {
	const all = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	before := leaktest.Descriptors(t)
	tests := []struct {
		name   string
		size   int64
		seals  int
		change func(h []byte)
		want   error
	}{
		{"nothing wrong", testSize, all, nil, nil},
		{"newer minor", testSize, all, func(h []byte) { h[64] = 7 }, nil},
		{"larger than wanted", 2 * testSize, all, nil, nil},
		{"not sealed", testSize, 0, nil, shm.ErrNotSealed},
		{"may shrink", testSize, unix.F_SEAL_GROW | unix.F_SEAL_SEAL, nil, shm.ErrNotSealed},
		{"may get seals", testSize, unix.F_SEAL_GROW | unix.F_SEAL_SHRINK, nil, shm.ErrNotSealed},
		{"too small", testSize - 1, all, nil, shm.ErrBadSegment},
		{"smaller than a header", 16, all, nil, shm.ErrBadSegment},
		{"empty", 0, all, nil, shm.ErrBadSegment},
		{"wrong kind", testSize, all, func(h []byte) { h[8] = byte(shm.KindLane) }, shm.ErrBadSegment},
		{"wrong magic", testSize, all, func(h []byte) { h[0] = 'X' }, shm.ErrBadSegment},
		{"not ready", testSize, all, func(h []byte) { h[66] = 0 }, shm.ErrNotReady},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := shm.Open(memfd(t, tt.size, tt.seals, tt.change), shm.KindTest, testSize)
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if err == nil {
				s.Close()
			}
		})
	}
	t.Run("other major", func(t *testing.T) {
		_, err := shm.Open(memfd(t, testSize, all, func(h []byte) { h[64], h[66] = 5, 5 }), shm.KindTest, testSize)
		var v *shm.VersionError
		if !errors.As(err, &v) || v.Ours != shm.ABIVersion || v.Theirs != 0x50005 {
			t.Fatalf("got %v", err)
		}
		if m := v.Error(); !strings.Contains(m, "5.5") || !strings.Contains(m, "4.4") {
			t.Errorf("message %q", m)
		}
	})
	t.Run("not a memfd", func(t *testing.T) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_, err = shm.Open(dup(t, int(r.Fd())), shm.KindTest, testSize)
		if !errors.Is(err, shm.ErrBadSegment) {
			t.Errorf("pipe: %v", err)
		}
		r.Close()
		w.Close()
	})
	t.Run("no descriptor", func(t *testing.T) {
		if _, err := shm.Open(-1, shm.KindTest, testSize); !errors.Is(err, shm.ErrBadSegment) {
			t.Errorf("got %v", err)
		}
	})
	if after := leaktest.Descriptors(t); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func TestViewsPanicOutside(t *testing.T) {
	mem := shm.AlignedBytes(64)
	for name, f := range map[string]func(){
		"behind the end": func() { shm.Uint64At(mem, 57) },
		"negative":       func() { shm.Uint32At(mem, -4) },
		"misaligned 8":   func() { shm.Uint64At(mem, 4) },
		"misaligned 4":   func() { shm.Uint32At(mem, 2) },
		"too many":       func() { shm.Uint64s(mem, 8, 8) },
		"overflow":       func() { shm.Uint64s(mem, 0, 1<<61) },
		"none":           func() { shm.Uint64s(mem, 0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
	shm.Uint64At(mem, 56).Store(1)
	shm.Uint32At(mem, 60).Store(1)
	if len(shm.Uint64s(mem, 0, 8)) != 8 {
		t.Error("length")
	}
}

func TestKindNames(t *testing.T) {
	for k, want := range map[shm.Kind]string{1: "lane", 2: "worker", 3: "domain", 5: "vault", 99: "test", 98: "kind(98)"} {
		if k.String() != want {
			t.Errorf("kind %d is %q", uint32(k), k)
		}
	}
}

// A view has the words where they lie, and is refused for what is no words.
func TestView(t *testing.T) {
	type part struct {
		A uint64
		B [2]atomic.Uint64
		C [16]byte
	}
	type whole struct {
		part
		D [3]uint64
	}
	mem := shm.AlignedBytes(8 + shm.SizeOf[whole]())
	v := shm.View[whole](mem, 8)
	v.B[1].Store(5)
	v.D[2] = 6
	copy(v.C[:], "x")
	if shm.Uint64At(mem, 8+16).Load() != 5 || shm.Uint64At(mem, len(mem)-8).Load() != 6 || mem[8+24] != 'x' {
		t.Errorf("%v", mem)
	}
	for what, f := range map[string]func(){
		"beyond the end": func() { shm.View[whole](mem, 16) },
		"misaligned":     func() { shm.View[uint64](mem, 4) },
		"a pointer":      func() { shm.View[struct{ p *int }](mem, 0) },
		"half a word":    func() { shm.View[struct{ a, b uint32 }](mem, 0) },
		"some bytes":     func() { shm.View[[7]byte](mem, 0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was taken", what)
				}
			}()
			f()
		}()
	}
}
