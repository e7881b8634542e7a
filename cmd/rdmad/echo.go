package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/bench"
	"github.com/rdmad/rdmad/server"
	"github.com/rdmad/rdmad/shm"
)

func newEcho() *cobra.Command {
	var socket string
	var workers int
	var wait server.Mode
	c := &cobra.Command{
		Use:   "echo",
		Short: "Serve echo/echo, and what the benchmarks call",
		Long: "Serve the method echo/echo, which answers with the request, and the methods of service bench\n" +
			"that the benchmarks call: page, sink, oneway and count. It ends with an interrupt or the daemon.",
		Example: "  rdmad echo --workers 8 --wait busy",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if workers < 1 {
				return usagef("--workers %d: want at least 1", workers)
			}
			err := bench.Serve(c.Context(), socket, workers, wait, func(node string) {
				fmt.Fprintf(c.OutOrStdout(), "serving echo and bench on node %s\n", table.Plain(node))
			})
			return unwelcome(c.Context(), err, socket)
		},
	}
	socketFlag(c, &socket)
	c.Flags().IntVar(&workers, "workers", 4, "how many requests to handle at once")
	waitFlag(c, &wait, server.DefaultWait, "how to wait for requests")
	return c
}

// waitFlag adds --wait.
func waitFlag(c *cobra.Command, mode *shm.WaitMode, preset shm.WaitMode, usage string) {
	c.Flags().TextVar(mode, "wait", preset, usage+": event, busy, adaptive, or adaptive:`time`")
}
