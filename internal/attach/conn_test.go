package attach

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// Who gives a connection up with something unread says goodbye, which the other side hears, and takes nothing more.
func TestForgo(t *testing.T) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for unread := range 3 {
		sock, err := net.DialUnix("unixpacket", nil, l.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := l.AcceptUnix()
		if err != nil {
			t.Fatal(err)
		}
		process, daemon := NewConn(sock), NewConn(theirs)
		bell, err := shm.NewBell()
		if err != nil {
			t.Fatal(err)
		}
		for range unread {
			if err := daemon.Send(&Message{Type: TypeWelcome}, bell.FD()); err != nil {
				t.Fatal(err)
			}
		}
		process.forgo()
		if err := daemon.Send(&Message{Type: TypeWelcome}, bell.FD()); !errors.Is(err, ErrClosed) {
			t.Errorf("%d unread: sent to who takes nothing: %v", unread, err)
		}
		if err := errors.Join(process.Close(), bell.Close()); err != nil {
			t.Error(err)
		}
		for k := range 2 { // one for a core that dies when it has heard it
			if m, _, err := daemon.Recv(); err != nil || m.Type != TypeBye {
				t.Errorf("%d unread: %+v, %v instead of goodbye %d", unread, m, err, k)
			}
		}
		if _, _, err := daemon.Recv(); !errors.Is(err, ErrClosed) {
			t.Errorf("%d unread: then %v", unread, err)
		}
		if err := daemon.Close(); err != nil {
			t.Error(err)
		}
	}
}

// connPair returns both ends of a connection.
func connPair(t *testing.T) (daemon, process *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, end := range []**Conn{&daemon, &process} {
		f := os.NewFile(uintptr(fds[i]), "socket")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		*end = NewConn(c.(*net.UnixConn))
		t.Cleanup(func() { _ = (*end).Close() })
	}
	return daemon, process
}

// A turn and room that are there count, however late it is by then, but nobody is waited for longer.
func TestSendThoughItIsLate(t *testing.T) {
	daemon, process := connPair(t)
	over := make(chan time.Time)
	close(over)
	for range 100 {
		if !daemon.beginBefore(over) {
			t.Fatal("the turn was there")
		}
		if daemon.beginBefore(over) {
			t.Fatal("two have the turn")
		}
		<-daemon.turn
		if err := daemon.sendWithin(0, &Message{Type: TypeClosed}); err != nil {
			t.Fatalf("sent to who has room: %v", err)
		}
		if m, _, err := process.Recv(); err != nil || m.Type != TypeClosed {
			t.Fatalf("%+v, %v", m, err)
		}
	}
	var err error
	for n := 0; err == nil && n < 1<<16; n++ {
		err = daemon.sendWithin(0, &Message{Type: TypeClosed})
	}
	if !errors.Is(err, ErrBusy) {
		t.Errorf("sent to who reads nothing: %v", err)
	}
	daemon.turn <- struct{}{}
	if err := daemon.sendWithin(0, &Message{Type: TypeClosed}); !errors.Is(err, ErrBusy) {
		t.Errorf("sent while another one does: %v", err)
	}
}

// A process that does not read gets no more than a few descriptors, and what is under way to it then keeps nobody from sending:
// what needs none still goes, and it gets all of them when it reads.
func TestFewDescriptorsUnread(t *testing.T) {
	daemon, process := connPair(t)
	bell, err := shm.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	daemon.patience = 20 * time.Millisecond
	took := 0
	for range 100 {
		if err = daemon.Hand(&Message{Type: TypeRegion}, bell.FD()); err == nil {
			took++
			continue
		}
		// Where this has stood still for as long as it waits, there may be room.
		if unread, _, looked := daemon.outgoing(); looked != nil || !errors.Is(err, ErrBusy) || unread > handed {
			break
		}
	}
	if !errors.Is(err, ErrBusy) || took < 2 || took > 8 {
		t.Errorf("%d descriptors were sent to who does not read: %v", took, err)
	}
	daemon.patience = time.Minute
	if err := daemon.Offer(&Message{Type: TypeClosed}); err != nil {
		t.Errorf("offered a message without: %v", err)
	}
	sent := make(chan error, 1)
	go func() { sent <- daemon.Hand(&Message{Type: TypeRegion}, bell.FD()) }()
	for got := 0; got <= took; {
		_, fds, err := process.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got += len(fds)
		shm.CloseFDs(fds)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
