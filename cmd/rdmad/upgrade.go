package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/bundle"
	"github.com/rdmad/rdmad/cmd/rdmad/look"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/status"
)

// upgradeFlags are the flags of an upgrade.
type upgradeFlags struct {
	socket  string
	timeout time.Duration
	json    bool
}

// upgradeResult is an upgrade as JSON.
type upgradeResult struct {
	Node string `json:"node"`
	// CoreBefore and CoreAfter are the process ids of the cores.
	CoreBefore int `json:"core_before"`
	CoreAfter  int `json:"core_after"`
	*status.Upgrade
}

func newUpgrade() *cobra.Command {
	var f upgradeFlags
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace the running daemon's core by the program that is now in its place",
		Long: "Replace the core of the running daemon by the program that is now where the daemon was started from.\n" +
			"Workers stay attached, and see a pause. A program that cannot go on where the core ends is refused, and\n" +
			"one that does not start is replaced by the old one again. The supervisor stays what it is: its process\n" +
			"must be restarted to change it. Without a core that serves, send the supervisor SIGUSR2. Who may send the daemon signals may do this.",
		Example: "  install -m 0755 bin/rdmad /usr/bin/rdmad\n  rdmad upgrade",
		Args:    noArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c.OutOrStdout()) },
	}
	socketFlag(c, &f.socket)
	timeoutFlag(c, &f.timeout, 30*time.Second, "how long to wait for the outcome")
	jsonFlag(c, &f.json)
	return c
}

// run asks for the upgrade, waits for its outcome, and prints it.
func (f *upgradeFlags) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	then := time.Now()
	before, err := signalled(ctx, f.socket, syscall.SIGUSR2, func(*status.Node) error { return nil })
	if err != nil {
		return withoutCore(f.socket, err)
	}
	after, err := awaited(ctx, f.socket, before.Node, f.timeout, upgradedSince(before, then))
	if err != nil {
		return err
	}
	r := upgradeResult{Node: after.Node, CoreBefore: before.PIDs.Core, CoreAfter: after.PIDs.Core, Upgrade: after.Upgrade}
	if f.json {
		if err := writeJSON(out, r); err != nil {
			return err
		}
		if r.Result != status.UpgradeDone {
			return statusError(exitFailure)
		}
		return nil
	}
	switch r.Result {
	case status.UpgradeDone:
		_, err = fmt.Fprintf(out, "node %s: rdmad %s -> %s, core %d -> %d, %.1f ms without a core\n",
			r.Node, r.From.Version, r.To.Version, r.CoreBefore, r.CoreAfter, r.PauseMS)
		return err
	case status.UpgradeRefused:
		return fmt.Errorf("node %s goes on with rdmad %s, the program was refused: %s", r.Node, r.From.Version, r.Reason)
	}
	return fmt.Errorf("node %s goes on with rdmad %s after %.1f ms without a core: %s", r.Node, r.From.Version, r.PauseMS, r.Reason)
}

// upgradedSince reports whether a status has a later upgrade than the one before, that has begun since then. One that was
// under way already is somebody else's, and perhaps with another program.
func upgradedSince(before *status.Node, then time.Time) func(*status.Node) bool {
	last := 0
	if before.Upgrade != nil {
		last = before.Upgrade.Number
	}
	return func(s *status.Node) bool {
		return s.Upgrade != nil && s.Upgrade.Number > last && !s.Upgrade.At.Before(then)
	}
}

// withoutCore adds to the error of a daemon whose core does not answer how its program is replaced all the same.
func withoutCore(socket string, err error) error {
	if !errors.Is(err, look.ErrNoAnswer) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	pids, perr := bundle.Processes(attach.SocketPath(socket))
	if perr != nil {
		return err
	}
	return fmt.Errorf("%w; if the core does not start, kill -USR2 %d has the supervisor start the program that is now in its place", err, pids[0])
}
