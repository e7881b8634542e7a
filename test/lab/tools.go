package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// toolGrace is how long a tool of the host may take to end when it is asked to.
const toolGrace = 10 * time.Second

// output runs a tool of the host and returns its standard output. The error has
// what it wrote to standard error. Package tools are asked to end rather than
// killed, because they would leave a system half installed.
func output(ctx context.Context, dir string, args ...string) (string, error) {
	var errs strings.Builder
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.Stderr = &errs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = toolGrace
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return string(out), nil
}

// isExit reports whether a tool was run and failed.
func isExit(err error) bool {
	var ended *exec.ExitError
	return errors.As(err, &ended)
}

// progress writes lines about what the lab does.
type progress struct{ w io.Writer }

func (p progress) say(format string, args ...any) {
	fmt.Fprintf(p.w, "lab: "+format+"\n", args...)
}
