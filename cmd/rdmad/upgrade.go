package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemon"
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
	*daemon.UpgradeStatus
}

func newUpgrade() *cobra.Command {
	var f upgradeFlags
	c := &cobra.Command{
		Use:   "upgrade",
		Short: "Replace the running daemon's core by the program that is now in its place",
		Long: "Replace the core of the running daemon by the program that is now where the daemon was started from.\n" +
			"Workers stay attached, and see a pause. A program that cannot go on where the core ends is refused, and\n" +
			"one that does not start is replaced by the old one again. The supervisor stays what it is: its process\n" +
			"must be restarted to change it. Who may send the daemon signals may do this.",
		Example: "  install -m 0755 bin/rdmad /usr/bin/rdmad\n  rdmad upgrade",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c.Context(), c.OutOrStdout()) },
	}
	socketFlag(c, &f.socket)
	c.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait for the outcome")
	jsonFlag(c, &f.json)
	return c
}

// run asks for the upgrade, waits for its outcome, and prints it.
func (f *upgradeFlags) run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	conn, err := client.Attach(ctx, f.socket, client.Name("rdmad-upgrade"))
	if err != nil {
		return err
	}
	defer conn.Close()
	before, err := statusOf(ctx, conn)
	if err != nil {
		return err
	}
	if err := syscall.Kill(before.PIDs.Supervisor, syscall.SIGUSR2); err != nil {
		return fmt.Errorf("signal the supervisor, process %d: %w", before.PIDs.Supervisor, err)
	}
	after, err := awaitUpgrade(ctx, conn, before)
	if err != nil {
		return err
	}
	r := upgradeResult{Node: after.Node, CoreBefore: before.PIDs.Core, CoreAfter: after.PIDs.Core, UpgradeStatus: after.Upgrade}
	if f.json {
		if err := writeJSON(out, r); err != nil {
			return err
		}
		if r.Result != daemon.UpgradeDone {
			return statusError(exitFailure)
		}
		return nil
	}
	switch r.Result {
	case daemon.UpgradeDone:
		_, err = fmt.Fprintf(out, "node %s: rdmad %s -> %s, core %d -> %d, %.1f ms without a core\n",
			r.Node, r.From.Version, r.To.Version, r.CoreBefore, r.CoreAfter, r.PauseMS)
		return err
	case daemon.UpgradeRefused:
		return fmt.Errorf("node %s goes on with rdmad %s, the program was refused: %s", r.Node, r.From.Version, r.Reason)
	}
	return fmt.Errorf("node %s goes on with rdmad %s after %.1f ms without a core: %s", r.Node, r.From.Version, r.PauseMS, r.Reason)
}

// upgradeLook is how often the outcome is looked for.
const upgradeLook = 20 * time.Millisecond

// awaitUpgrade returns the first status with another upgrade than the one before.
func awaitUpgrade(ctx context.Context, conn *client.Conn, before *daemon.Status) (*daemon.Status, error) {
	last := 0
	if before.Upgrade != nil {
		last = before.Upgrade.Number
	}
	for {
		s, err := statusOf(ctx, conn)
		if err == nil && s.Upgrade != nil && s.Upgrade.Number > last {
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

// statusOf asks for the status by an attachment.
func statusOf(ctx context.Context, conn *client.Conn) (*daemon.Status, error) {
	raw, err := conn.Status(ctx)
	if err != nil {
		return nil, err
	}
	s := new(daemon.Status)
	return s, json.Unmarshal(raw, s)
}
