package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
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

// A process that stood still while its question was answered has no answer, and hears that from the end of its attachment: it would
// wait for ever.
func TestUnreadAnswersEndTheAttachment(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{domain: &domain{conductor: &conductor{log: zerolog.Nop()}}}
	if w.conn, err = connOf(fds[0]); err != nil {
		t.Fatal(err)
	}
	defer w.conn.Close()
	peer, err := connOf(fds[1])
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	const asked = 8 // of a few KiB, which take up what an answer may find unread
	for seq := uint64(1); seq <= asked; seq++ {
		if err := w.sendJSON(seq, "status", func() (any, error) { return strings.Repeat("x", 4096), nil }); err != nil {
			t.Fatal(err)
		}
	}
	for seq := uint64(1); ; seq++ {
		m, fds, err := peer.Recv()
		shm.CloseFDs(fds)
		if errors.Is(err, attach.ErrClosed) {
			if seq == 1 || seq > asked {
				t.Errorf("%d of %d answers have come", seq-1, asked)
			}
			return
		}
		if err != nil || m.Seq != seq {
			t.Fatalf("answer %d: %+v, %v", seq, m, err)
		}
	}
}
