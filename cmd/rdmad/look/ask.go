// Package look is what the commands share that look at a node: asking its daemon, and
// showing what it says to people and to programs.
package look

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
)

// Limit is how long a daemon may take to describe itself.
const Limit = 5 * time.Second

// ErrNoAnswer is wrapped by the errors about a daemon that is there and does not answer.
var ErrNoAnswer = errors.New("the daemon does not answer")

// Daemon is an attachment as a tool: it takes none of the ids and the memory that workers
// have. Its methods are safe for concurrent use.
type Daemon struct {
	session *attach.Session
	socket  string
	limit   time.Duration
}

// Attach attaches to the daemon on socket; empty means the environment variable
// RDMAD_SOCKET or else the default. limit bounds this and each question. The caller must
// Close it. Errors: those of package attach, ErrNoAnswer, or ctx's.
func Attach(ctx context.Context, socket, name string, limit time.Duration) (*Daemon, error) {
	d := &Daemon{socket: attach.SocketPath(socket), limit: limit}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	var err error
	d.session, err = attach.Open(limited, d.socket, attach.Hello{Role: attach.RoleTool, Name: name}, attach.Events{})
	if err != nil {
		return nil, d.explain(ctx, began, err)
	}
	return d, nil
}

// explain makes an error of a daemon that has not answered in time, which may be the caller's, one that says so. ctx is the
// caller's; that it was cancelled is no word about the daemon.
func (d *Daemon) explain(ctx context.Context, began time.Time, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	limit := d.limit
	if end, ok := ctx.Deadline(); ok && end.Before(began.Add(limit)) {
		limit = end.Sub(began).Round(time.Millisecond)
	}
	return fmt.Errorf("%w on %s within %v", ErrNoAnswer, d.socket, limit)
}

// Node returns the name of the node.
func (d *Daemon) Node() string { return d.session.Welcome.Node }

// Raw asks for the daemon's state and returns it as it came.
func (d *Daemon) Raw(ctx context.Context) (json.RawMessage, error) {
	return d.ask(ctx, &attach.Message{Type: attach.TypeStatus})
}

// Status asks for the daemon's state.
func (d *Daemon) Status(ctx context.Context) (*status.Node, error) {
	raw, err := d.Raw(ctx)
	if err != nil {
		return nil, err
	}
	return Parse(raw)
}

// Drain takes the node out of service, or puts it back, and returns the daemon's state
// afterwards.
func (d *Daemon) Drain(ctx context.Context, resume bool) (*status.Node, error) {
	raw, err := d.ask(ctx, &attach.Message{Type: attach.TypeDrain, Drain: &attach.Drain{Resume: resume}})
	if err != nil {
		return nil, err
	}
	return Parse(raw)
}

// Stacks returns what the daemon's goroutines do, also if one of its agents hangs.
func (d *Daemon) Stacks(ctx context.Context) (text string, err error) {
	raw, err := d.ask(ctx, &attach.Message{Type: attach.TypeStacks})
	if err != nil {
		return "", err
	}
	return text, json.Unmarshal(raw, &text)
}

func (d *Daemon) ask(ctx context.Context, m *attach.Message) (json.RawMessage, error) {
	limited, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	began := time.Now()
	a, err := d.session.Ask(limited, m)
	if err != nil {
		return nil, d.explain(ctx, began, err)
	}
	if a.StatusJSON == nil {
		return nil, fmt.Errorf("%w: the daemon answers with %q instead of its state", attach.ErrVersion, a.Type)
	}
	return a.StatusJSON, nil
}

// Signal sends a signal to the process that the daemon says is its supervisor, if the kernel agrees: it listens on
// the socket, or has that open, if another process made it and passed it on. What a daemon of another user says is
// not to end processes of who asks it.
func (d *Daemon) Signal(s *status.Node, sig syscall.Signal) error {
	pid := s.PIDs.Supervisor
	cred, err := d.session.Listener()
	switch {
	case err != nil:
		return fmt.Errorf("who listens on %s: %w", d.socket, err)
	case pid < 1:
		return fmt.Errorf("node %s says that its supervisor is process %d", s.Node, pid)
	case int(cred.Pid) != pid && !HasOpen(pid, d.socket):
		return fmt.Errorf("node %s says that its supervisor is process %d, which is not seen to have %s open from here: signal it with %v where it runs, as its user or root",
			s.Node, pid, d.socket, unix.SignalName(sig))
	}
	if err := syscall.Kill(pid, sig); err != nil {
		if errors.Is(err, syscall.EPERM) {
			return fmt.Errorf("signal the supervisor, process %d: %w: its user may, and root", pid, err)
		}
		return fmt.Errorf("signal the supervisor, process %d: %w", pid, err)
	}
	return nil
}

// HasOpen reports whether a process has the socket open that is bound to path: by the kernel's list of sockets, see
// proc_net(5), and of the process's descriptors.
func HasOpen(pid int, path string) bool {
	list, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false
	}
	bound := make(map[string]bool) // as links of descriptors name them
	for line := range strings.Lines(string(list)) {
		// Num RefCount Protocol Flags Type St Inode Path
		if f := strings.Fields(line); len(f) == 8 && f[7] == path {
			bound["socket:["+f[6]+"]"] = true
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	open, err := os.ReadDir(dir)
	if err != nil || len(bound) == 0 {
		return false
	}
	for _, e := range open {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && bound[to] {
			return true
		}
	}
	return false
}

// Close ends the attachment.
func (d *Daemon) Close() error {
	err := d.session.Close()
	d.session.Release()
	return err
}

// Parse reads a state, for people: see Plain.
func Parse(raw json.RawMessage) (*status.Node, error) {
	s := new(status.Node)
	if err := json.Unmarshal(printable.JSON(raw), s); err != nil {
		return nil, fmt.Errorf("%w: status: %w", attach.ErrVersion, err)
	}
	return s, nil
}

// Ask attaches, asks for the daemon's state, and detaches.
func Ask(ctx context.Context, socket, name string) (json.RawMessage, error) {
	d, err := Attach(ctx, socket, name, Limit)
	if err != nil {
		return nil, err
	}
	raw, err := d.Raw(ctx)
	_ = d.Close() // the answer is what counts
	return raw, err
}
