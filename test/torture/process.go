package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// spawner starts processes from one thread that lives as long as the harness: the
// kernel kills them when that thread ends.
type spawner struct{ jobs chan func() }

func newSpawner() *spawner {
	s := &spawner{make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range s.jobs {
			f()
		}
	}()
	return s
}

// start starts a command that is killed when the harness ends.
func (s *spawner) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr.Setpgid = true // a terminal's signals are for the harness
	return s.do(cmd.Start)
}

// do runs a function on the thread.
func (s *spawner) do(f func() error) error {
	done := make(chan error)
	s.jobs <- func() { done <- f() }
	return <-done
}

func (s *spawner) close() { close(s.jobs) }

// member is a process in a role.
type member struct {
	role string
	args roleArgs
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  string
	// finished is closed when a worker has an outcome for every call.
	finished chan struct{}
	// gone is closed when the process has ended, and err is set.
	gone chan struct{}
	err  error
	// killed says that the harness has killed it: what it had under way is nobody's.
	killed atomic.Bool
}

// startMember starts this program again in a role.
func startMember(s *spawner, program, role string, args roleArgs, change func(*exec.Cmd)) (*member, error) {
	encoded, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	m := &member{role: role, args: args, cmd: exec.Command(program), finished: make(chan struct{}), gone: make(chan struct{})}
	m.log = filepath.Join(args.Dir, role+"s.log")
	out, err := os.OpenFile(m.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	m.cmd.Stderr = out
	m.cmd.Env = append(os.Environ(), roleEnv+"="+role, argsEnv+"="+string(encoded), "GORACE=atexit_sleep_ms=0")
	// Pipes of the harness, not of exec: reading goes on while the end is waited for.
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		_ = inR.Close()
		_ = inW.Close()
		return nil, err
	}
	m.cmd.Stdin, m.cmd.Stdout, m.in = inR, outW, inW
	if change != nil {
		change(m.cmd)
	}
	err = s.start(m.cmd)
	_ = inR.Close()
	_ = outW.Close()
	if err != nil {
		_ = inW.Close()
		_ = outR.Close()
		return nil, fmt.Errorf("start a %s: %w", role, err)
	}
	go m.watch(outR)
	return m, nil
}

// watch reads what the process says until its end.
func (m *member) watch(out *os.File) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "finished" {
			close(m.finished)
		}
	}
	_ = out.Close()
	m.err = m.cmd.Wait()
	_ = m.in.Close()
	close(m.gone)
}

func (m *member) pid() int { return m.cmd.Process.Pid }

// alive reports whether the process has not ended.
func (m *member) alive() bool {
	select {
	case <-m.gone:
		return false
	default:
		return true
	}
}

// signal sends a signal, which does nothing when the process has ended.
func (m *member) signal(s syscall.Signal) { _ = m.cmd.Process.Signal(s) }

// kill kills the process and waits for its end.
func (m *member) kill() {
	m.killed.Store(true)
	m.signal(syscall.SIGKILL)
	<-m.gone
}

// stop asks the process to end and kills it when it does not within the time. It
// reports whether it ended by itself and well.
func (m *member) stop(grace time.Duration) error {
	m.signal(syscall.SIGTERM)
	select {
	case <-m.gone:
		return m.err
	case <-time.After(grace):
		m.kill()
		return fmt.Errorf("%s %d did not end within %v", m.role, m.args.Instance, grace)
	}
}
