package shm_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/leaktest"
	"github.com/rdmad/rdmad/shm"
)

// socketPair returns two ends of a SOCK_SEQPACKET connection.
func socketPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		ends[i] = c.(*net.UnixConn)
		if err := ends[i].SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	return ends[0], ends[1]
}

// bells makes n descriptors to pass.
func bells(t *testing.T, n int) (fds []int) {
	t.Helper()
	for range n {
		b, err := shm.NewBell()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		fds = append(fds, b.FD())
	}
	return fds
}

func TestPassFDs(t *testing.T) {
	a, b := socketPair(t)
	seg := testSegment(t)
	for _, n := range []int{0, 1, shm.MaxFDs} {
		fds := bells(t, n)
		if n > 0 {
			fds[n-1] = seg.FD()
		}
		before := leaktest.Descriptors(t)
		if err := shm.SendFDs(a, []byte("hello"), fds...); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 16)
		got, came, err := shm.RecvFDs(b, buf)
		if err != nil || string(buf[:got]) != "hello" || len(came) != n {
			t.Fatalf("n %d: got %q, %d descriptors, %v", n, buf[:got], len(came), err)
		}
		for _, fd := range came {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor %d: flags %#x, %v: not close-on-exec", fd, flags, err)
			}
		}
		if n > 0 {
			s, err := shm.Open(came[n-1], shm.KindTest, testSize)
			if err != nil {
				t.Fatal(err)
			}
			shm.CloseFDs(came[:n-1])
			s.Close()
		}
		if after := leaktest.Descriptors(t); after != before {
			t.Errorf("n %d: %d descriptors, %d before", n, after, before)
		}
	}
}

func TestSendFDsRefuses(t *testing.T) {
	a, _ := socketPair(t)
	if shm.SendFDs(a, []byte("x"), bells(t, shm.MaxFDs+1)...) == nil {
		t.Error("too many descriptors were sent")
	}
	if shm.SendFDs(a, nil) == nil {
		t.Error("an empty message was sent")
	}
	if shm.SendFDs(a, []byte("x"), -1) == nil {
		t.Error("a bad descriptor was sent")
	}
}

// What a hostile peer sends must neither be accepted nor leak descriptors.
func TestRecvFDsClosesWhatItRefuses(t *testing.T) {
	tests := []struct {
		name    string
		msg     []byte
		fds     int
		wantEOF bool
	}{
		{name: "message does not fit", msg: make([]byte, 9), fds: 2},
		{name: "too many descriptors", msg: []byte("x"), fds: shm.MaxFDs + 3},
		{name: "as many as the kernel takes", msg: []byte("x"), fds: 253},
		{name: "empty message with descriptors", fds: 2, wantEOF: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := socketPair(t)
			raw, err := a.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			fds := make([]int, tt.fds)
			one := bells(t, 1)
			for i := range fds {
				fds[i] = one[0]
			}
			before := leaktest.Descriptors(t)
			if cerr := raw.Control(func(fd uintptr) { err = sendRaw(int(fd), tt.msg, fds) }); cerr != nil || err != nil {
				t.Fatal(cerr, err)
			}
			n, got, err := shm.RecvFDs(b, make([]byte, 8))
			if err == nil || n != 0 && !errors.Is(err, shm.ErrFDsLost) || got != nil {
				t.Errorf("accepted %d bytes, %d descriptors, %v", n, len(got), err)
			}
			if errors.Is(err, io.EOF) != tt.wantEOF {
				t.Errorf("error %v", err)
			}
			if after := leaktest.Descriptors(t); after != before {
				t.Errorf("%d descriptors, %d before", after, before)
			}
			// The connection is still in step.
			if tt.wantEOF {
				return
			}
			if err := shm.SendFDs(a, []byte("next")); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 8)
			if n, _, err := shm.RecvFDs(b, buf); err != nil || string(buf[:n]) != "next" {
				t.Errorf("then %q, %v", buf[:n], err)
			}
		})
	}
}

// The last words of a peer arrive, also those of one that has not listened.
func TestRecvFDsLastWords(t *testing.T) {
	a, b := socketPair(t)
	if err := shm.SendFDs(b, []byte("unread")); err != nil {
		t.Fatal(err)
	}
	if err := shm.SendFDs(a, []byte("goodbye"), bells(t, 1)...); err != nil {
		t.Fatal(err)
	}
	a.Close()
	buf := make([]byte, 8)
	n, fds, err := shm.RecvFDs(b, buf)
	if err != nil || string(buf[:n]) != "goodbye" || len(fds) != 1 {
		t.Errorf("%q, %d descriptors, %v", buf[:n], len(fds), err)
	}
	shm.CloseFDs(fds)
	if _, _, err := shm.RecvFDs(b, buf); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

func TestRecvFDsEndOfConnection(t *testing.T) {
	a, b := socketPair(t)
	a.Close()
	if _, _, err := shm.RecvFDs(b, make([]byte, 8)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
	if err := shm.SendFDs(b, []byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("got %v, want EPIPE", err)
	}
}

// Whoever sends a socket cannot have it closed for as long as it likes.
func TestCloseFDsDoesNotWait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reader, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil { // it takes no more: nobody reads
		_, err = unix.SendmsgN(fd, make([]byte, 1<<16), nil, nil, unix.MSG_DONTWAIT)
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 20}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	f.Close()
	start := time.Now()
	shm.CloseFDs([]int{fd})
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A socket that takes no descriptors is sent none, from its first message on, and sends what it
// likes.
func TestRefuseFDs(t *testing.T) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var known error
	err = raw.Control(func(fd uintptr) {
		err = shm.RefuseFDs(int(fd))
		_, known = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, 83)
	})
	if err != nil {
		t.Fatal(err)
	}
	if errors.Is(known, unix.ENOPROTOOPT) {
		t.Skip("the kernel has no SO_PASSRIGHTS: this needs Linux 6.16")
	}
	c, err := net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fds := bells(t, 1)
	if err := shm.SendFDs(c, []byte("before it is accepted"), fds...); !errors.Is(err, unix.EPERM) {
		t.Errorf("descriptors before it is accepted: %v", err)
	}
	s, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := shm.SendFDs(c, []byte("x"), fds...); !errors.Is(err, unix.EPERM) {
		t.Errorf("descriptors: %v", err)
	}
	if err := errors.Join(shm.SendFDs(c, []byte("none")), shm.SendFDs(s, []byte("one"), fds...)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		end *net.UnixConn
		msg string
		fds int
	}{{s, "none", 0}, {c, "one", 1}} {
		buf := make([]byte, 64)
		n, got, err := shm.RecvFDs(want.end, buf)
		shm.CloseFDs(got)
		if err != nil || string(buf[:n]) != want.msg || len(got) != want.fds {
			t.Errorf("%q with %d descriptors, %v, want %q with %d", buf[:n], len(got), err, want.msg, want.fds)
		}
	}
}
