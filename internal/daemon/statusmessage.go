package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/shm"
)

// statusRoom is how much of a message's size is left to all that is not the status.
const statusRoom = 256

// sendStatus answers the question seq with the daemon's state.
func (w *worker) sendStatus(seq uint64) error {
	return w.sendJSON(seq, "status", func() ([]byte, error) { return w.domain.conductor.status().encoded() })
}

// stacksAsked answers with what the goroutines do.
func (c *conductor) stacksAsked(w *worker, m *attach.Message) error {
	if w.role != attach.RoleTool || !mayOperate(w.uid) {
		return fmt.Errorf("%w: only root and user %d, whose daemon it is, may see its goroutines", attach.ErrPermission, os.Geteuid())
	}
	return w.sendJSON(m.Seq, "stacks", func() ([]byte, error) {
		var text strings.Builder
		// As a panic would print them; nothing of the Go runtime has a simpler form.
		if err := pprof.Lookup("goroutine").WriteTo(&text, 2); err != nil {
			return nil, err
		}
		return json.Marshal(text.String())
	})
}

// sendJSON answers the question seq, for what, with JSON: in the message or, if it is too
// large for that, in a memfd that comes with it. One is made at a time for each worker.
func (w *worker) sendJSON(seq uint64, what string, encoded func() ([]byte, error)) error {
	w.lent.turn.Lock()
	defer w.lent.turn.Unlock()
	data, err := encoded()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	m := &attach.Message{Type: attach.TypeStatusIs, Seq: seq, StatusJSON: data}
	var fds []int
	if len(data) > attach.MaxMessage-statusRoom {
		fd, err := shm.CreateSealed("rdmad-"+what, data, leaving(config.LeftByLanes/2))
		if err != nil {
			return fmt.Errorf("%w: %s of %d bytes: %w", attach.ErrLimit, what, len(data), err)
		}
		defer func() { _ = unix.Close(fd) }()
		if err := w.lent.lend(seq, fd); err != nil {
			return fmt.Errorf("%w: %s of %d bytes: %w", attach.ErrLimit, what, len(data), err)
		}
		m.StatusJSON, fds = nil, []int{fd}
	}
	if err := w.conn.Hand(m, fds...); err != nil {
		if errors.Is(err, attach.ErrLimit) {
			return err
		}
		w.domain.conductor.log.Debug().Err(err).Int("worker", w.id).Msg(what + " not sent")
		w.untold(err) // else whoever has asked would wait for ever
	}
	return nil
}
