package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// commandGrace is how long the command may take to end when it is asked to.
const commandGrace = 5 * time.Second

// runCommand runs a command on the host until it ends, the context is done, or
// the guest dies. In the latter cases it ends the command's process group. The
// calling goroutine must be locked to its thread.
func runCommand(ctx context.Context, args []string, g *guest, address guestAddress) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), addressEnv+"="+address.String())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// The group is what is ended in the end. In the foreground it may use the
	// terminal, and gets its signals.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if isTerminal(os.Stdin) {
		cmd.SysProcAttr.Foreground = true
		cmd.SysProcAttr.Ctty = int(os.Stdin.Fd())
	}
	if err := cmd.Start(); err != nil {
		status := statusNotRun
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			status = statusNotFound
		}
		return &statusError{status, err}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if status := exitStatus(err); status != 0 {
			return &statusError{status: status}
		}
		return nil
	case <-ctx.Done():
		endCommand(cmd.Process.Pid, stopSignal(ctx), ended)
		return context.Cause(ctx)
	case <-g.ended:
		endCommand(cmd.Process.Pid, syscall.SIGTERM, ended)
		return fmt.Errorf("%w; its console ended with:\n%s", errGuestDied, g.console.tail())
	}
}

// endCommand asks a process group to end and makes it.
func endCommand(leader int, s syscall.Signal, ended <-chan error) {
	// Errors mean that nobody is left.
	_ = unix.Kill(-leader, s)
	select {
	case <-ended:
	case <-time.After(commandGrace):
	}
	_ = unix.Kill(-leader, unix.SIGKILL)
}

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal syscall.Signal }

func (e interrupted) Error() string { return "ended by signal: " + e.signal.String() }

// stopSignal returns the signal that the command is ended with.
func stopSignal(ctx context.Context) syscall.Signal {
	var i interrupted
	if errors.As(context.Cause(ctx), &i) {
		return i.signal
	}
	return syscall.SIGTERM
}
