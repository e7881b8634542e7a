package daemon

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
)

// A process that gives up attaching takes no more and says goodbye. What it was to be told meanwhile must not
// throw the goodbye away: without it the process is a worker until it ends.
func TestGoodbyeOutlivesWhatIsNotHeard(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{given: make(map[uint16]bool)}
	if w.conn, err = connOf(fds[0]); err != nil {
		t.Fatal(err)
	}
	defer w.conn.Close()
	peer, err := connOf(fds[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Send(&attach.Message{Type: attach.TypeBye}); err != nil {
		t.Fatal(err)
	}
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	w.tellClosed(&laneInfo{})
	if m, _, err := w.conn.Recv(); err != nil || m.Type != attach.TypeBye {
		t.Errorf("%+v, %v", m, err)
	}
	if _, _, err := w.conn.Recv(); !errors.Is(err, attach.ErrClosed) {
		t.Errorf("after it: %v", err)
	}
}
