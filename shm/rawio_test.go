package shm_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/shm"
)

// fataler is what a test and a rapid test have in common.
type fataler interface{ Fatal(...any) }

// stream returns the two ends of a non-blocking byte stream with small buffers,
// so that writes are often partial.
func stream(t fataler) (r, w int) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_SNDBUF, 4096); err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// Whatever is appended comes out of the other end once, in order, whatever the
// sizes of the parts and however partial the calls are.
func TestVecMatchesABuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, w := stream(t)
		defer unix.Close(r)
		defer unix.Close(w)
		var out, in shm.Vec
		var sent, got []byte    // what was appended to out; what arrived
		var holes [][]byte      // the ranges of in, in order
		holeLeft, wrote := 0, 0 // bytes of holes not filled yet; bytes written
		next := byte(0)
		settle := func() {
			// The filled prefix of holes is what arrived.
			filled := 0
			for _, h := range holes {
				filled += len(h)
			}
			filled -= holeLeft
			got = got[:0]
			for _, h := range holes {
				n := min(len(h), filled)
				got = append(got, h[:n]...)
				filled -= n
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(0, 40).Draw(t, "parts") {
					p := make([]byte, rapid.SampledFrom([]int{0, 1, 7, 300, 5000}).Draw(t, "size"))
					for i := range p {
						next = next*5 + 1
						p[i] = next
					}
					sent = append(sent, p...)
					out.Append(p)
				}
			},
			"write": func(t *rapid.T) {
				n, err := out.Writev(w)
				if err != nil && !errors.Is(err, unix.EAGAIN) {
					t.Fatal(err)
				}
				wrote += n
			},
			"room": func(t *rapid.T) {
				p := make([]byte, rapid.SampledFrom([]int{0, 1, 3, 1000}).Draw(t, "size"))
				holes = append(holes, p)
				holeLeft += len(p)
				in.Append(p)
			},
			"read": func(t *rapid.T) {
				n, err := in.Readv(r)
				if err != nil && !errors.Is(err, unix.EAGAIN) {
					t.Fatal(err)
				}
				holeLeft -= n
			},
			"": func(t *rapid.T) {
				settle()
				if !bytes.Equal(got, sent[:len(got)]) {
					t.Fatalf("%d bytes arrived damaged", len(got))
				}
				if out.Len() != len(sent)-wrote || in.Len() != holeLeft {
					t.Fatalf("Len %d and %d, want %d and %d", out.Len(), in.Len(), len(sent)-wrote, holeLeft)
				}
				if (out.Len() == 0) != (out.Parts() == 0) {
					t.Fatalf("%d bytes in %d parts", out.Len(), out.Parts())
				}
			},
		})
	})
}

func TestVecTakesMoreThanOneCall(t *testing.T) {
	r, w := stream(t)
	defer unix.Close(r)
	defer unix.Close(w)
	var v shm.Vec
	const parts = 3*shm.MaxVecs + 5
	for i := range parts {
		v.Append([]byte{byte(i)})
	}
	var got []byte
	buf := make([]byte, 8192)
	for range 100 {
		if _, err := v.Writev(w); err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		n, err := shm.ReadFD(r, buf)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if len(got) != parts || v.Len() != 0 || v.Parts() != 0 {
		t.Fatalf("%d of %d bytes came, %d left", len(got), parts, v.Len())
	}
	for i := range got {
		if got[i] != byte(i) {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
	v.Append([]byte{1})
	v.Reset()
	if n, err := v.Writev(w); n != 0 || err != nil || v.Len() != 0 {
		t.Errorf("an empty list wrote %d, %v", n, err)
	}
}

// A list that is refilled before it runs empty, as on a busy connection, keeps
// its size.
func TestVecDoesNotGrow(t *testing.T) {
	r, w := stream(t)
	defer unix.Close(r)
	defer unix.Close(w)
	var v shm.Vec
	p, buf := make([]byte, 512), make([]byte, 512)
	fill := func() {
		for v.Len() < 64<<10 {
			v.Append(p)
		}
		if _, err := v.Writev(w); err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		if _, err := shm.ReadFD(r, buf); err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	for n := range 20_000 {
		if n == 1000 {
			runtime.ReadMemStats(&before)
		}
		fill()
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 256<<10 {
		t.Errorf("%d bytes allocated for refills", n)
	}
}

func TestReadWriteFD(t *testing.T) {
	r, w := stream(t)
	defer unix.Close(r)
	if n, err := shm.WriteFD(w, nil); n != 0 || err != nil {
		t.Errorf("writing nothing: %d, %v", n, err)
	}
	if n, err := shm.ReadFD(r, nil); n != 0 || err != nil {
		t.Errorf("reading nothing: %d, %v", n, err)
	}
	buf := make([]byte, 8)
	if _, err := shm.ReadFD(r, buf); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("nothing there: %v", err)
	}
	if n, err := shm.WriteFD(w, []byte("abc")); n != 3 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	if n, err := shm.ReadFD(r, buf); n != 3 || err != nil || string(buf[:3]) != "abc" {
		t.Errorf("read: %d, %v", n, err)
	}
	unix.Close(w)
	if n, err := shm.ReadFD(r, buf); n != 0 || err != nil {
		t.Errorf("at the end: %d, %v", n, err)
	}
	var v shm.Vec
	v.Append(buf)
	if n, err := v.Readv(r); n != 0 || err != nil || v.Len() != 8 {
		t.Errorf("readv at the end: %d, %v", n, err)
	}
	if _, err := shm.WriteFD(-1, buf); !errors.Is(err, unix.EBADF) {
		t.Errorf("bad descriptor: %v", err)
	}
}

func TestBellAndEpoll(t *testing.T) {
	b, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	other := shm.OpenBell(dup(t, b.FD())) // as in another process
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epfd)
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, b.FD(), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: 7}); err != nil {
		t.Fatal(err)
	}
	waits := map[string]func(time.Duration) (int, int32){}
	for name, f := range map[string]func(int, []unix.EpollEvent, time.Duration) (int, error){"EpollWait": shm.EpollWait, "EpollWaitRaw": shm.EpollWaitRaw} {
		waits[name] = func(limit time.Duration) (int, int32) {
			ev := make([]unix.EpollEvent, 4)
			n, err := f(epfd, ev, limit)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return n, ev[0].Fd
		}
	}
	for name, wait := range waits {
		if n, _ := wait(0); n != 0 {
			t.Errorf("%s: a silent bell rings", name)
		}
		if n, _ := wait(time.Millisecond); n != 0 {
			t.Errorf("%s: a silent bell rings", name)
		}
		for range 3 {
			other.Ring()
		}
		if n, fd := wait(patience); n != 1 || fd != 7 {
			t.Errorf("%s: %d events, data %d", name, n, fd)
		}
		b.Silence()
		if n, _ := wait(0); n != 0 {
			t.Errorf("%s: the bell rings after Silence", name)
		}
		b.Silence() // nothing to take back: must not block
	}
	other.Ring()
	if n, err := shm.EpollWait(epfd, make([]unix.EpollEvent, 1), -1); n != 1 || err != nil {
		t.Errorf("without a limit: %d, %v", n, err)
	}
	// A full counter is a ringing bell, and Ring does not block on it.
	if _, err := unix.Write(b.FD(), []byte{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	b.Ring()
	b.Ring()
	if err := errors.Join(b.Close(), other.Close()); err != nil {
		t.Error(err)
	}
	if _, err := shm.EpollWait(-1, make([]unix.EpollEvent, 1), 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("bad descriptor: %v", err)
	}
}

func TestNanotime(t *testing.T) {
	read := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano()
	}
	last := shm.Nanotime()
	for range 10000 {
		now := shm.Nanotime()
		if now < last {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
	const slack = int64(50 * time.Microsecond)
	for range 100 {
		before := read()
		now := shm.Nanotime()
		after := read()
		if now < before-slack || now > after+slack {
			t.Fatalf("%d is not between %d and %d", now, before, after)
		}
	}
}
