package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/bench"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/internal/perf"
	perfreport "github.com/rdmad/rdmad/internal/perf/report"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
	// exitMissed is that of a measurement which misses a threshold.
	exitMissed = 3
)

// usageError is a command line that cannot be used.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// configError is a configuration that could not be read.
type configError struct{ error }

func (e *configError) Unwrap() error { return e.error }

// usagef makes a usageError.
func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// statusError ends the program with a status, silently: everything has been
// said.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// interruptedError is that of a command which a signal has ended, and says so in the place of the context's own words.
type interruptedError struct {
	error
	signal string
}

func (e *interruptedError) Error() string {
	return strings.ReplaceAll(e.error.Error(), context.Canceled.Error(), e.signal)
}

func (e *interruptedError) Unwrap() error { return e.error }

// interrupted says of the error of a command that it is from a signal, which is the cause of the end of ctx, if it is.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return &interruptedError{err, context.Cause(ctx).Error()}
}

// lastWords returns where the error of a command goes. The processes of a daemon end whether somebody reads it or not: who
// started them waits for their end.
func lastWords(c *cobra.Command) io.Writer {
	if name := c.Name(); c.HasParent() && !c.Parent().HasParent() && (name == "run" || name == handoff.CoreCommand) {
		nodelog.OutliveReader() // to the end: the exit status is to be that of the error
		return event.Patient(os.Stderr)
	}
	return os.Stderr
}

// report writes the error of a command for people and returns the exit status.
func report(out io.Writer, c *cobra.Command, err error) int {
	var status statusError
	var usage *usageError
	var unread *configError
	var refused config.Errors
	var input *perf.InputError
	var missed *perfreport.MissedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &refused):
		// One problem per line, each with its place: no prefix, so that
		// editors can jump there.
		fmt.Fprintln(out, refused)
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintf(out, "rdmad: %v (see: %s --help)\n", usage, c.CommandPath())
		return exitUsage
	case errors.As(err, &input):
		fmt.Fprintf(out, "rdmad: %s (see: %s --help)\n", explain(c, err), c.CommandPath())
		return exitUsage
	case perf.IsInput(err):
		// The other side has said it, or is another one; the error says what to do.
		fmt.Fprintf(out, "rdmad: %s\n", explain(c, err))
		return exitUsage
	case errors.As(err, &missed):
		fmt.Fprintf(out, "rdmad: %s\n", explain(c, err))
		return exitMissed
	case errors.As(err, &unread):
		hint := ""
		switch {
		case errors.Is(err, os.ErrNotExist):
			hint = " (print one to begin with: rdmad config example)"
		case errors.Is(err, os.ErrPermission):
			hint = " (run it as the user of the daemon)"
		}
		fmt.Fprintf(out, "rdmad: %v%s\n", unread, hint)
		return exitUsage
	}
	// Other than exitFailure for a core only, whose supervisor sees it.
	ended := daemon.ExitStatus(err)
	if ended != handoff.StatusHandOver {
		fmt.Fprintf(out, "rdmad: %s\n", explain(c, err))
	}
	return ended
}

// hints say what to do about the errors of the libraries. The first that
// matches counts.
var hints = []struct {
	err  error
	hint string
}{
	// These errors say it themselves: how to start a daemon or a service, and who may do what was refused.
	{client.ErrNotRunning, ""},
	{client.ErrPermission, ""},
	{bench.ErrUnserved, ""},
	{client.ErrVersion, "use the rdmad and the library of one release; see: rdmad version"},
	{client.ErrNoService, "see what there is with: rdmad status"},
	{client.ErrLimit, ""}, // these name the key, of [limits] or another, or what of the system is exhausted
	{client.ErrTooLarge, ""},
	{client.ErrRemote, ""},
	{counters.ErrNotRunning, "no daemon runs, it was stopped in an orderly way, or observe.counters is elsewhere: see --file"},
	{counters.ErrPermission, "who may read is decided by observe.counters_mode; root may"},
	{counters.ErrDamaged, "name the file with --file, or restart the daemon"},
	{look.ErrNoAnswer, "it hangs, or is very busy: collect what can be had with: rdmad support-bundle"},
	{client.ErrDeadline, "see who serves it with: rdmad status"},
	{client.ErrClosed, "the daemon's log says why"},
}

// oneLine makes one line of the lines of a text: errors that were joined have one each, and the end of a log has several behind a
// colon.
func oneLine(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		switch {
		case b.Len() == 0:
		case strings.HasSuffix(b.String(), ":"):
			b.WriteByte(' ')
		default:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// explain returns the error of a command as one line with what to do about it.
func explain(c *cobra.Command, err error) string {
	text := table.Plain(oneLine(err.Error())) // a handler's text can be anything
	for _, prefix := range []string{"client: ", "server: ", "counters: ", "link: ", "perf: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	for _, h := range hints {
		if !errors.Is(err, h.err) {
			continue
		}
		hint := h.hint
		if h.err == client.ErrDeadline && c.Flags().Lookup("timeout") != nil {
			hint = "give it longer with --timeout, or " + hint
		}
		if hint != "" {
			text += " (" + hint + ")"
		}
		break
	}
	return text
}
