package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/counted"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
)

// countersFlags are the flags of the command counters.
type countersFlags struct {
	socket, file string
	json, watch  bool
	interval     time.Duration
}

func newCounters() *cobra.Command {
	var f countersFlags
	c := &cobra.Command{
		Use:   "counters",
		Short: "Show the daemon's counters and histograms, also when it hangs or has died",
		Long: "Show what the daemon has counted, from the file that its agents write (observe.counters). The daemon is not asked:\n" +
			"the first line says whether it runs, hangs, is halted or has died, and what follows is what it counted last. Times\n" +
			"and sizes are those since the core started. docs/metrics.md says what each counter means.\n\n" +
			"Exit status: 0 if the file could be read, whatever has become of the daemon; 1 if not.",
		Example: "  rdmad counters\n" +
			"  rdmad counters --watch --interval 5s\n" +
			"  rdmad counters --file /run/rdmad/rdmad.counters --json",
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.interval < 10*time.Millisecond {
				return usagef("--interval %v: want 10ms or more", f.interval)
			}
			if c.Flags().Changed("interval") && !f.watch {
				return usagef("--interval %v: the counters are shown once; give --watch to see them again and again", f.interval)
			}
			return f.run(c.Context(), c.OutOrStdout())
		},
	}
	socketFlag(c, &f.socket)
	jsonFlag(c, &f.json)
	c.Flags().StringVar(&f.file, "file", "", "the `file` of counters (default: next to the socket)")
	c.Flags().BoolVarP(&f.watch, "watch", "w", false, "show them again and again, with rates; with --json one object per line")
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "how often, with --watch")
	return c
}

// path is where the file is.
func (f *countersFlags) path() string {
	if f.file != "" {
		return f.file
	}
	c := config.Config{Node: config.Node{Socket: attach.SocketPath(f.socket)}, Observe: config.Observe{Counters: config.Auto}}
	return c.CountersPath()
}

func (f *countersFlags) run(ctx context.Context, out io.Writer) error {
	var before *counted.View
	var last time.Time
	for {
		v, err := readCounters(f.path())
		if err != nil {
			return err
		}
		now := time.Now()
		switch {
		case f.json && f.watch:
			err = json.NewEncoder(out).Encode(v)
		case f.json:
			err = writeJSON(out, v)
		default:
			err = v.Print(out, before, now.Sub(last))
		}
		if err != nil || !f.watch {
			return err
		}
		before, last = v, now
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.interval):
		}
		if !f.json {
			fmt.Fprintln(out)
		}
	}
}

// readCounters reads a file of counters, anew each time: another core has another one.
func readCounters(path string) (*counted.View, error) {
	r, err := counters.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	s, err := r.Snapshot()
	if err != nil {
		return nil, err
	}
	return counted.Of(s), nil
}
