package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/daemon"
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
	*daemon.ReloadStatus
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
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr()) },
	}
	socketFlag(c, &f.socket)
	c.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for the outcome")
	jsonFlag(c, &f.json)
	return c
}

// run asks for the reload, waits for its outcome, and prints it.
func (f *reloadFlags) run(ctx context.Context, out, problems io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	before, err := f.status(ctx)
	if err != nil {
		return err
	}
	if before.Config == nil {
		return fmt.Errorf("node %s cannot reload: it is rdmad %s; see: rdmad version", before.Node, before.Version)
	}
	if err := syscall.Kill(before.PIDs.Supervisor, syscall.SIGHUP); err != nil {
		return fmt.Errorf("signal the supervisor, process %d: %w", before.PIDs.Supervisor, err)
	}
	after, err := f.awaitReload(ctx, before)
	if err != nil {
		return err
	}
	r := after.Config.Reload
	if f.json {
		err = writeJSON(out, reloadResult{after.Node, r})
	} else {
		err = printReload(out, problems, after.Node, r)
	}
	if err == nil && r.Result != daemon.ReloadDone {
		return statusError(exitUsage)
	}
	return err
}

// status asks for the daemon's state.
func (f *reloadFlags) status(ctx context.Context) (*daemon.Status, error) {
	raw, err := look.Ask(ctx, f.socket, "rdmad-reload")
	if err != nil {
		return nil, err
	}
	return look.Parse(raw)
}

// awaitReload returns the first status with a later reload than the one before, when what
// it has changed is in force.
func (f *reloadFlags) awaitReload(ctx context.Context, before *daemon.Status) (*daemon.Status, error) {
	last := 0
	if before.Config.Reload != nil {
		last = before.Config.Reload.Number
	}
	for {
		s, err := f.status(ctx)
		if err == nil && s.Config != nil && s.Config.Reload != nil && s.Config.Reload.Number > last && s.Config.Digest == s.Config.Reload.Digest {
			return s, nil
		}
		if err == nil {
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(upgradeLook):
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the outcome is not known, see the daemon's log: %w", err)
		}
	}
}

// reloadRows is the table of what has become of the changes.
func reloadRows(r *daemon.ReloadStatus) *table.Table {
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
func printReload(out, problems io.Writer, node string, r *daemon.ReloadStatus) error {
	if r.Result != daemon.ReloadDone {
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
