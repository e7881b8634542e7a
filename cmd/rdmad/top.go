package main

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/top"
)

// shortestLook bounds how often "rdmad top" asks the daemon.
const shortestLook = 100 * time.Millisecond

func newTop() *cobra.Command {
	source := new(top.Source)
	var once, plain bool
	o := top.Options{}
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch what this node does: lanes, services, workers, peers and errors",
		Long: "Show again and again what the daemon of this node does: rates of requests and groups, peers, lanes with their\n" +
			"occupancy, services, workers, and what went wrong. On a terminal keys choose what is shown (? for help). With\n" +
			"its output somewhere else, on a terminal without a size, or with TERM=dumb, it prints plain tables. A daemon\n" +
			"that is gone or hangs is said to be so, over the last that it told, until it is back.\n\n" +
			"Exit status: 0, or 1 if the first look fails, or, without a terminal, the last one.",
		Example: "  rdmad top\n" +
			"  rdmad top --once --sort busy\n" +
			"  rdmad top --interval 10s --count 6 > minute.txt",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.Interval < shortestLook:
				return usagef("--interval %v: want at least %v", o.Interval, shortestLook)
			case o.Count < 0:
				return usagef("--count %d: want 0 or more", o.Count)
			case once && c.Flags().Changed("count"):
				return usagef("--once and --count: only one can say when it ends")
			case o.Sort != "" && !slices.ContainsFunc(top.Columns(), func(h string) bool { return strings.EqualFold(h, o.Sort) }):
				return usagef("--sort %q: no table has this column", o.Sort)
			}
			if once {
				o.Count = 1
			}
			if o.Count == 1 || plain || os.Getenv("TERM") == "dumb" || !isScreen(os.Stdout) || !isTerminal(os.Stdin) {
				return top.Plain(c.Context(), c.OutOrStdout(), source, o)
			}
			return top.Screen(c.Context(), os.Stdin, os.Stdout, source, o)
		},
	}
	socketFlag(c, &source.Socket)
	f := c.Flags()
	f.StringVar(&source.File, "file", "", "the `file` of counters, for a daemon that hangs (default: where it has said, or next to the socket)")
	f.DurationVar(&o.Interval, "interval", time.Second, "time between two looks, from which rates are counted")
	f.IntVar(&o.Count, "count", 0, "end after so many looks (default: never)")
	f.BoolVar(&once, "once", false, "look once and print tables; there are no rates then")
	f.BoolVar(&plain, "plain", false, "print tables also on a terminal")
	f.StringVar(&o.Filter, "filter", "", "show only rows that contain this `text`")
	f.StringVar(&o.Sort, "sort", "", "sort the tables that have it by this `column`, such as busy or req/s, numbers with the largest first")
	return c
}
