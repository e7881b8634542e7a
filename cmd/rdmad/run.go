package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/daemon"
)

func newRun() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon of this node",
		Long: "Run the daemon of this node in the foreground. An interrupt or SIGTERM stops it in an orderly\n" +
			"way: calls in flight are finished first.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, data, err := loadConfig(file)
			if err != nil {
				return err
			}
			return daemon.Supervise(c.Context(), cfg, file, data, daemon.NewLogger(cfg, os.Stderr))
		},
	}
	configFlag(c, &file)
	return c
}

// newCore is the command that the supervisor runs as a child. It finds its
// configuration and its sockets in inherited descriptors.
func newCore() *cobra.Command {
	return &cobra.Command{
		Use:    "core",
		Short:  "Be the core of a daemon",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return daemon.Core() },
	}
}
