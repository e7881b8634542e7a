package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/config"
)

// Process is a child in a process group of its own, so that a terminal's
// signals do not reach it. It gets a SIGTERM when the thread that started it
// ends. Its output goes to a file. Its methods are safe for concurrent use.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	// done is closed when the process has ended and err is set.
	done chan struct{}
	err  error
}

// StartProcess starts a process whose output is appended to the file log. The
// name is what errors call it. The caller must Stop or Kill it.
func StartProcess(name, log string, argv ...string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	p := &Process{name: name, log: log, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = withoutManager(config.WithoutKeys(os.Environ())) // what is meant for the node that this is started on, say
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// managers are the variables by which a service manager and the process that it has started know each other.
var managers = []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "FDSTORE"}

// withoutManager returns an environment without what a service manager has said to this process: a child would tell it
// that the service is ready, or give it descriptors to keep.
func withoutManager(environ []string) []string {
	return slices.DeleteFunc(environ, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(managers, name)
	})
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Alive reports whether the process has not ended yet.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Ended returns how the process ended, with the end of its output, or nil when
// it has not.
func (p *Process) Ended() error {
	if p.Alive() {
		return nil
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended: %s%s", p.name, how, p.Tail())
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Stop asks the process to end, and kills it with its group if it has not done
// so within grace. It returns when the process is gone. The error says that it
// had to be killed, or that it failed, or is nil.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(grace):
		p.Kill()
		return fmt.Errorf("%s did not end within %v and was killed%s", p.name, grace, p.Tail())
	}
	if p.err != nil {
		return p.Ended()
	}
	return nil
}

// Kill kills the process with its group and returns when it is gone.
func (p *Process) Kill() {
	// Both fail only if there is nothing left to kill.
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	_ = p.cmd.Process.Kill()
	<-p.done
}

// tailLines is how much of a log errors show.
const tailLines = 12

// Tail returns the last lines of the process's output, indented, ready to be
// appended to an error message; empty if there is none.
func (p *Process) Tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	const enough = 16 << 10
	if end, err := f.Seek(0, io.SeekEnd); err != nil {
		return ""
	} else if _, err := f.Seek(max(0, end-enough), io.SeekStart); err != nil {
		return ""
	}
	text, err := io.ReadAll(f)
	if err != nil || len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Sprintf("; its log ends:\n  %s", strings.Join(lines, "\n  "))
}
