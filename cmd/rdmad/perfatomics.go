package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/atomics"
)

// bothTypes is the value of --atomic-type for all of them.
const bothTypes = "both"

func newPerfAtomics() *cobra.Command {
	var w perfWork
	var kind string
	t := new(atomics.Tool)
	kinds := append([]string{bothTypes}, atomics.Types...)
	c := newPerfCommand(atomics.Name, func(*cobra.Command) (perf.Tool, error) {
		if err := checkChoice("atomic-type", kind, kinds...); err != nil {
			return nil, err
		}
		t.Types = []string{kind}
		if kind == bothTypes {
			t.Types = atomics.Types
		}
		return t, w.checkThresholds()
	}, w.judge)
	c.Short = "Count on the same 8 bytes from several processes by atomic operations"
	c.Long = "Several processes, each with one or more connections, increment one counter in the server's memory, by fetch-and-add and by compare-and-swap. Every run checks that\n" +
		"each increment has counted exactly once, besides telling the latency of an operation, which is that of the whole round trip, and\n" +
		"how many there are per second. A compare-and-swap that finds that another was faster is tried again, and counted. A device that\n" +
		"does no atomic operations is refused with status 2."
	c.Example = "  rdmad perf atomics --self\n  rdmad perf atomics node1 --clients 4 -n 1000 -A CMP_AND_SWAP\n  rdmad perf atomics node1 -A FETCH_AND_ADD -t 16 --min-msgrate 0.5"
	f := c.Flags()
	f.StringVarP(&kind, "atomic-type", "A", bothTypes, "what increments: "+strings.Join(kinds, ", "))
	// It fails for a flag that there is not.
	_ = c.RegisterFlagCompletionFunc("atomic-type", cobra.FixedCompletions(kinds, cobra.ShellCompDirectiveNoFileComp))
	f.IntVar(&t.Clients, "clients", 4, "processes that count at the same time; 1: the client itself")
	f.IntVar(&t.Connections, "connections", 1, "connections of each process, all of which count")
	f.Uint64VarP(&t.Count, "iters", "n", 1000, "increments of each connection, for each type")
	f.IntVarP(&t.Depth, "tx-depth", "t", 1, "additions that a connection has under way; swaps are one at a time")
	f.BoolVarP(&t.Event, "events", "e", false, "sleep until there are completions instead of polling for them")
	w.bound(c, true, false)
	f.Float64Var(&w.thresholds.MinMsgRate, "min-msgrate", 0, "end with status 3 if there are less, in `millions` of operations per second")
	return c
}
