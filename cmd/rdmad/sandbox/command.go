package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// interruptGrace is how long a command gets to end by itself after ctx has:
	// a terminal's interrupt reaches it too.
	interruptGrace = time.Second
	// terminateGrace is how long it gets after a SIGTERM.
	terminateGrace = 5 * time.Second
)

// Command runs a command in the sandbox with this process's standard files and
// returns its exit status; 128 and the signal's number if a signal ended it.
// When ctx ends it makes the command end.
func (s *Sandbox) Command(ctx context.Context, argv []string) (status int, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = s.Env()
	if cmd.Path, err = s.lookup(argv[0]); err != nil {
		return 0, err
	}
	cmd.Err = nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("sandbox: start the command: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = cmd.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		end(cmd.Process, done)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("sandbox: the command: %w", err)
	}
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// lookup finds the command: the program of the sandbox by its own name, others
// in the PATH.
func (s *Sandbox) lookup(name string) (string, error) {
	if name == "rdmad" {
		return s.options.Program, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("sandbox: %w", err)
	}
	return path, nil
}

// end ends a process, more firmly each time, and returns when done is closed.
func end(p *os.Process, done <-chan struct{}) {
	for _, step := range []struct {
		signal os.Signal
		grace  time.Duration
	}{{nil, interruptGrace}, {syscall.SIGTERM, terminateGrace}} {
		if step.signal != nil {
			_ = p.Signal(step.signal)
		}
		select {
		case <-done:
			return
		case <-time.After(step.grace):
		}
	}
	_ = p.Kill()
	<-done
}
