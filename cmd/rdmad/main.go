// Command rdmad is the daemon of a node, its services for benchmarks, and the
// tools to look at it and measure it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(execute())
}

// execute runs the command line and returns the exit status.
func execute() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	started := false
	root := newRoot()
	addStandard(root)
	out := newOutput()
	root.SetOut(out)
	root.PersistentPreRun = func(c *cobra.Command, _ []string) {
		started = true
		if onlyLooks(c) {
			// The first signal asks it to end, and the next one ends it whatever it waits for.
			context.AfterFunc(ctx, stop)
		}
	}
	c, err := root.ExecuteContextC(ctx)
	if err != nil && !started {
		// cobra refused the command line itself.
		err = &usageError{err}
	}
	if err == nil {
		err = out.err
	}
	return report(lastWords(c), c, interrupted(ctx, err))
}

// onlyLooks reports whether a command has no processes or sockets to end in an orderly way.
func onlyLooks(c *cobra.Command) bool {
	for c.HasParent() && c.Parent().HasParent() {
		c = c.Parent()
	}
	return c.GroupID == "look" || c.Name() == "config"
}

// taggedCommands are hidden commands that only builds with some tag have.
var taggedCommands []*cobra.Command

// newRoot returns the command with all its subcommands.
func newRoot() *cobra.Command {
	showVersion := false
	root := &cobra.Command{
		Use:     "rdmad",
		Example: "  rdmad sandbox -- rdmad call b/echo/echo hello\n  rdmad run -c config.toml\n  rdmad status",
		Short:   "Share a node's RDMA queue pairs among processes",
		Long: "rdmad runs once per node and owns its RDMA queue pairs. Worker processes attach by a Unix\n" +
			"socket, put requests into rings in shared memory, and get their answers there.\n\n" +
			"Exit status: 0 if all went well, 1 if something failed, 2 for a wrong command line or\n" +
			"configuration, 3 if a measurement has missed a threshold.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if showVersion && len(args) == 0 {
				return ownVersions().print(c.OutOrStdout())
			}
			return chooseCommand(c, args)
		},
	}
	root.Flags().BoolVar(&showVersion, "version", false, "print the version, as \"rdmad version\" does")
	root.AddGroup(
		&cobra.Group{ID: "daemon", Title: "The daemon:"},
		&cobra.Group{ID: "look", Title: "Look at a node:"},
		&cobra.Group{ID: "try", Title: "Try and measure:"},
	)
	for _, g := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{"daemon", []*cobra.Command{newRun(), newDrain(), newReload(), newUpgrade(), newConfig(), newCerts(), newVersion()}},
		{"look", append(newLists(), newStatus(), newTop(), newCounters(), newDoctor(), newSupportBundle(), newDevices(), newPing(), newTrace(), newCall())},
		{"try", []*cobra.Command{newSandbox(), newEcho(), newBench(), newPerf()}},
		{"", append([]*cobra.Command{newCore(), newBenchWorker()}, taggedCommands...)},
	} {
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	return root
}

// chooseCommand is what a command does that only has subcommands: it tells them,
// or refuses what is none.
func chooseCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	near := ""
	c.SuggestionsMinimumDistance = 2
	if names := c.SuggestionsFor(args[0]); len(names) > 0 {
		near = fmt.Sprintf(", did you mean %q?", names[0])
	}
	return usagef("unknown command %q for %q%s", args[0], c.CommandPath(), near)
}

// noArgs refuses arguments, of which the first may be the file that is meant.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if c.Flags().Lookup("config") != nil {
		meant = fmt.Sprintf(", did you mean -c %s?", args[0])
	}
	return usagef("%s takes no arguments, got %q%s", c.CommandPath(), args[0], meant)
}

// wantArgs checks the number of arguments. The form is what errors say is wanted.
func wantArgs(least, most int, form string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("got %d arguments, want %s", len(args), form)
		}
		return nil
	}
}
