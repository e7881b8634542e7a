package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/table"
	"github.com/rdmad/rdmad/internal/scaling"
	"github.com/rdmad/rdmad/slots"
)

func newConfigExplainMemory() *cobra.Command {
	var f configFlags
	workers := 0
	asJSON := false
	c := &cobra.Command{
		Use:   "explain-memory",
		Short: "Print what rings, lanes, workers, peers and domains take",
		Long: "Print the bytes that a configuration makes the daemon take: for each ring and lane, worker, peer and\n" +
			"domain, and in all, and what the limits of its process must be. Lanes are made when they are first\n" +
			"used; the sum is for all of them. docs/scaling.md explains the figures.",
		Example: "  rdmad config explain-memory -c config.toml --workers 64",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := f.load(c.Context())
			if err != nil {
				return err
			}
			if most := slots.MaxOwner * len(cfg.Domains); workers < 0 || workers > most {
				return usagef("--workers %d: want 0 to %d, %d for each domain", workers, most, slots.MaxOwner)
			}
			if !c.Flags().Changed("workers") {
				workers = cfg.Limits.Workers * len(cfg.Domains)
			}
			m := scaling.Explain(cfg.Config, workers)
			if asJSON {
				return writeJSON(c.OutOrStdout(), m)
			}
			return printMemory(c.OutOrStdout(), &m)
		},
	}
	f.add(c, "")
	c.Flags().IntVar(&workers, "workers", 0, "how many `processes` are attached in all (default: as many as limits.workers allows)")
	jsonFlag(c, &asJSON)
	return c
}

func printMemory(out io.Writer, m *scaling.Memory) error {
	var b strings.Builder
	rings := table.New("ONE END OF A LANE", "SLOTS", "RING", "OF IT LOCKED", "VAULT", "PRIVATE", "TOGETHER")
	for _, r := range m.Rings {
		rings.Row("class "+r.Class, fmt.Sprintf("%d x %d", r.Slots, r.SlotSize), r.Ring, r.Locked, r.Vault, r.Private, r.Total)
	}
	rings.Row("one direction", "", m.Way.Ring, m.Way.Locked, m.Way.Vault, m.Way.Private, m.Way.Total)
	rings.Row("a peer, both ways", "", m.Peer.Ring, m.Peer.Locked, m.Peer.Vault, m.Peer.Private, m.Peer.Total)
	rings.PrintRows(&b)
	parts := table.New("WHAT", "BYTES", "")
	parts.Row("a domain", m.Domain, "without workers and lanes")
	parts.Row("a worker", m.Worker, "attached, without requests")
	parts.Row("regions of a worker", m.RegionsPerWorker, "at most (limits.region_bytes)")
	parts.Row("unread answers of a worker", m.SpillPerWorker, "at most (limits.spill_bytes)")
	parts.Print(&b)
	total := table.New("IN ALL", "BYTES", "")
	total.Row("memory", m.Total, fmt.Sprintf("%d domains, %d workers, %d peers; without regions and unread answers", m.Domains, m.Workers, m.Peers))
	total.Row("locked with verbs", m.Locked, "RLIMIT_MEMLOCK, besides the fabric's queues (LimitMEMLOCK=infinity)")
	total.Row("descriptors", m.Descriptors, "of core and supervisor together, besides regions and some dozens; RLIMIT_NOFILE is for each of the two: as much is enough")
	total.Print(&b)
	_, err := io.WriteString(out, b.String())
	return err
}
