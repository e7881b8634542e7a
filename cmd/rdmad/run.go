package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/bench"
	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/internal/supervisor"
	"github.com/rdmad/rdmad/internal/tenant"
	"github.com/rdmad/rdmad/internal/version"
	"github.com/rdmad/rdmad/server"
)

// serveFlag is the flag of "rdmad run", and of its core, for a service in the core.
const serveFlag = "serve"

func newRun() *cobra.Command {
	var f configFlags
	serve := false
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon of this node",
		Long: "Run the daemon of this node in the foreground. An interrupt or SIGTERM stops it in an orderly\n" +
			"way: calls in flight are finished first. SIGHUP reloads the configuration; see: rdmad reload. SIGUSR2\n" +
			"replaces its core; see: rdmad upgrade.",
		Example: "  rdmad run -c config.toml\n  rdmad run --set log.level=debug",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := f.load(c.Context())
			if err != nil {
				return err
			}
			source, err := filepath.Abs(f.file) // for whoever reads it, or its problems, elsewhere
			if err != nil {
				return err
			}
			again := f.sources()
			again.File = source
			setup := supervisor.Setup{
				Config: l.Config, Source: source, Overrides: l.Overrides(), Reload: again.Reload, Log: nodelog.New(l.Config, os.Stderr, "supervisor"),
			}
			if serve {
				setup.CoreArgs = []string{"--" + serveFlag}
			}
			return supervisor.Run(c.Context(), setup)
		},
	}
	f.add(c, "")
	c.Flags().BoolVar(&serve, serveFlag, false, "have the core itself serve what \"rdmad echo\" serves")
	return c
}

// newCore is the command that the supervisor runs as a child. It finds its
// configuration and its sockets in inherited descriptors.
func newCore() *cobra.Command {
	probe, serve := false, false
	c := &cobra.Command{
		Use:    handoff.CoreCommand,
		Short:  "Be the core of a daemon",
		Hidden: true,
		Args:   noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if probe {
				return version.Probe(c.OutOrStdout())
			}
			if serve {
				return daemon.Core(c.Context(), tenant.Of(bench.Register, server.Name("echo")))
			}
			return daemon.Core(c.Context())
		},
	}
	c.Flags().BoolVar(&serve, serveFlag, false, "serve what \"rdmad echo\" serves")
	c.Flags().BoolVar(&probe, handoff.ProbeFlag, false, "print the versions that decide whether it can take over, and end")
	return c
}
