package main

import (
	"errors"
	"os/exec"
	"syscall"
)

// Exit statuses of the lab itself. They are those of timeout(1), env(1) and
// shells, so that they are hardly ever a program's own.
const (
	statusUsage     = 2
	statusNoLab     = 3
	statusTimeout   = 124
	statusFailed    = 125
	statusNotRun    = 126
	statusNotFound  = 127
	statusSignalled = 128
)

// statusError is an error that says with which status the lab ends.
type statusError struct {
	status int
	// err is nil if there is nothing left to say.
	err error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return "failed"
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// exitStatus returns what a shell calls the exit status of a process whose
// exec.Cmd.Wait returned err.
func exitStatus(err error) int {
	var ended *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return 0
	case !errors.As(err, &ended):
		return statusFailed
	}
	if ws, ok := ended.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return statusSignalled + int(ws.Signal())
	}
	return ended.ExitCode()
}
