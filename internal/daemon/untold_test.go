package daemon

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// connect gives a worker a connection until the test ends, and returns its process's end.
func (w *worker) connect(t *testing.T) (process *attach.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []**attach.Conn{&w.conn, &process} {
		if *c, err = connOf(fds[i]); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = (*c).Close() })
	}
	return process
}

// A process that gives up attaching takes no more and says goodbye. What it was to be told meanwhile must not
// throw the goodbye away: without it the process is a worker until it ends.
func TestGoodbyeOutlivesWhatIsNotHeard(t *testing.T) {
	w := &worker{given: make(map[uint16]bool)}
	peer := w.connect(t)
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
	w := &worker{domain: &domain{conductor: &conductor{log: zerolog.Nop()}}}
	peer := w.connect(t)
	const asked = 8 // of a few KiB, which take up what an answer may find unread
	for seq := uint64(1); seq <= asked; seq++ {
		if err := w.sendJSON(seq, "status", func() ([]byte, error) { return json.Marshal(strings.Repeat("x", 4096)) }); err != nil {
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
