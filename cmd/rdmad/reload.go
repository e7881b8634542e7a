package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/status"
)

// reloadFlags are the flags of a reload.
type reloadFlags struct {
	socket  string
	timeout time.Duration
	json    bool
}

// reloadResult is a reload as JSON.
type reloadResult struct {
	Node string `json:"node"`
	*status.Reload
}

func newReload() *cobra.Command {
	var f reloadFlags
	c := &cobra.Command{
		Use:   "reload",
		Short: "Make the running daemon read its configuration again",
		Long: "Make the running daemon read its configuration again, put in force what can be without a restart, and\n" +
			"print what has changed and what waits for a restart. If there is any problem nothing changes, the problems\n" +
			"are printed, and the exit status is 2. SIGHUP does the same. See before what would change with:\n" +
			"rdmad config diff. Who may send the daemon signals may do this.",
		Example: "  rdmad config diff\n  rdmad reload",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr()) },
	}
	socketFlag(c, &f.socket)
	timeoutFlag(c, &f.timeout, 10*time.Second, "how long to wait for the outcome")
	jsonFlag(c, &f.json)
	return c
}

// run asks for the reload, waits for its outcome, and prints it.
func (f *reloadFlags) run(ctx context.Context, out, problems io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	then := time.Now()
	before, err := signalled(ctx, f.socket, syscall.SIGHUP, func(s *status.Node) error {
		if s.Config == nil {
			return fmt.Errorf("node %s cannot reload: it is rdmad %s; see: rdmad version", s.Node, s.Version)
		}
		return nil
	})
	if err != nil {
		return err
	}
	after, err := awaited(ctx, f.socket, before.Node, f.timeout, reloadedSince(before, then))
	if err != nil {
		return err
	}
	r := after.Config.Reload
	if f.json {
		err = writeJSON(out, reloadResult{after.Node, r})
	} else {
		err = printReload(out, problems, after.Node, r)
	}
	if err == nil && r.Result != status.ReloadDone {
		return statusError(exitUsage)
	}
	return err
}

// reloadedSince reports whether a status has a later reload than the one before, that has begun since then, and what it has changed is in
// force. One that was under way already may have read the file as it was.
func reloadedSince(before *status.Node, then time.Time) func(*status.Node) bool {
	last := 0
	if before.Config.Reload != nil {
		last = before.Config.Reload.Number
	}
	return func(s *status.Node) bool {
		return s.Config != nil && s.Config.Reload != nil && s.Config.Reload.Number > last && !s.Config.Reload.At.Before(then) &&
			cmp.Or(s.Config.SupervisorDigest, s.Config.Digest) == s.Config.Reload.Digest // the core of an older release has the latter only
	}
}

// reloadRows is the table of what has become of the changes.
func reloadRows(r *status.Reload) *table.Table {
	t := table.New("KEY", "BEFORE", "FILE", "APPLIED")
	for _, c := range r.Applied {
		applied := "yes"
		if c.Scope != "" {
			applied += ", " + c.Scope
		}
		t.Row(c.Path, tomlValue(c.Old), tomlValue(c.New), applied)
	}
	for _, c := range r.Pending {
		t.Row(c.Path, tomlValue(c.Old), tomlValue(c.New), "no, needs a "+c.Applies().String())
	}
	return t
}

// printReload writes what has become of a reload, and problems to where errors go.
func printReload(out, problems io.Writer, node string, r *status.Reload) error {
	if r.Result != status.ReloadDone {
		_, err := fmt.Fprintf(problems, "%s\nrdmad: node %s keeps its configuration, digest %s\n", strings.Join(r.Problems, "\n"), node, r.Digest)
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "node %s: %d applied, %d wait for a restart, digest %s\n", node, len(r.Applied), len(r.Pending), r.Digest)
	if len(r.Applied)+len(r.Pending) > 0 {
		b.WriteByte('\n')
		reloadRows(r).PrintRows(&b)
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "and %d more: rdmad config diff\n", r.More)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
