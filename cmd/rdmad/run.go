package main

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/config"
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
			cfg, err := loadConfig(file)
			if err != nil {
				return err
			}
			return daemon.Supervise(c.Context(), cfg, newLogger(cfg.Log))
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

// newLogger returns the daemon's log on standard error.
func newLogger(l config.Log) zerolog.Logger {
	var out io.Writer = os.Stderr
	if l.Format == "console" || l.Format == "auto" && isTerminal(os.Stderr) {
		out = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly, NoColor: !isTerminal(os.Stderr)}
	}
	// The configuration has checked the level.
	level, err := zerolog.ParseLevel(l.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}
