package main

import (
	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/look"
)

func newStatus() *cobra.Command {
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the daemon's peers, lanes, services, workers and counters",
		Long: "Show the state of the daemon of this node: how it runs, its peers, services, workers, lanes and counters.\n" +
			"Tables without rows are left out, and so are counters at 0. For one list, and to choose from it, there are:\n" +
			"rdmad peers, lanes, services, workers; to watch it: rdmad top.",
		Example: "  rdmad status\n  rdmad status --json | jq .counters",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			raw, err := look.Ask(c.Context(), socket, "rdmad-status")
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), raw)
			}
			s, err := look.Parse(raw)
			if err != nil {
				return err
			}
			return look.Print(c.OutOrStdout(), s)
		},
	}
	socketFlag(c, &socket)
	jsonFlag(c, &asJSON)
	return c
}
