package attach

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

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
		if m, _, err := daemon.Recv(); err != nil || m.Type != TypeBye {
			t.Errorf("%d unread: %+v, %v instead of the goodbye", unread, m, err)
		}
		if _, _, err := daemon.Recv(); !errors.Is(err, ErrClosed) {
			t.Errorf("%d unread: then %v", unread, err)
		}
		if err := daemon.Close(); err != nil {
			t.Error(err)
		}
	}
}
