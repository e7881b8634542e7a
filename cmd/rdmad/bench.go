package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/bench"
)

func newBench() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure calls from worker processes",
		Long: "Start worker processes that attach to the daemon of this node and make calls to the service of\n" +
			"\"rdmad echo\". Latencies are full round trips as callers see them. Every answer's content is\n" +
			"checked. Answers of more than 1 KiB are read where they arrive.\n\n" +
			"Processor time is that of the worker processes and of this node's daemon, and in a sandbox that of all\n" +
			"processes that take part. Elsewhere services, also those of this node, and other nodes are not in it.",
		Example: "  rdmad sandbox -- rdmad bench call --clients 8 --depth 64",
		RunE:    chooseCommand,
	}
	c.AddCommand(
		newWorkload(bench.Call, "Echo messages of a given size"),
		newWorkload(bench.Stream, "Call with requests of a given size and get 8 bytes for each"),
		newWorkload(bench.Pages, "Send small requests and get answers of a given size"),
		newWorkload(bench.OneWay, "Post messages of a given size without answers, until all have arrived"),
	)
	return c
}

func newWorkload(w bench.Workload, short string) *cobra.Command {
	spec := bench.Spec{Workload: w}
	size := byteSize(w.DefaultSize())
	var asJSON bool
	c := &cobra.Command{
		Use:     string(w),
		Short:   short,
		Example: "  rdmad sandbox -- rdmad bench " + string(w) + " --clients 8 --duration 2s",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("count") && c.Flags().Changed("duration") {
				return usagef("--count and --duration: only one can end the run")
			}
			if c.Flags().Changed("count") && spec.Count == 0 {
				return usagef("--count 0: want at least one message")
			}
			spec.Size = int(size)
			if err := spec.Check(); err != nil {
				return &usageError{err}
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("bench: %w", err)
			}
			o := bench.Options{Command: []string{program, benchWorker}}
			if isTerminal(os.Stderr) {
				o.Progress = showProgress
			}
			r, err := bench.Run(c.Context(), spec, o)
			if isTerminal(os.Stderr) {
				fmt.Fprint(os.Stderr, "\r\033[K")
			}
			if r == nil {
				return unwelcome(c.Context(), err, spec.Socket)
			}
			show := r.Table
			if asJSON {
				show = func(out io.Writer) error { return writeJSON(out, r) }
			}
			if unshown := show(c.OutOrStdout()); unshown != nil {
				return unshown
			}
			if r.Mismatches > 0 {
				return fmt.Errorf("bench: %d of %d answers had the wrong content", r.Mismatches, r.Messages)
			}
			if err != nil {
				err = fmt.Errorf("bench: %w", err)
			}
			return err
		},
	}
	f := c.Flags()
	f.Var(&size, "size", "size of the messages")
	f.IntVar(&spec.Clients, "clients", 1, "number of worker processes")
	if w != bench.OneWay { // nothing is outstanding that has no answer
		f.IntVar(&spec.Depth, "depth", 1, "requests that each process keeps outstanding")
	}
	f.Uint64Var(&spec.Count, "count", 0, "messages of all processes together, instead of --duration")
	f.DurationVar(&spec.Duration, "duration", 5*time.Second, "how long to measure")
	f.DurationVar(&spec.Warmup, "warmup", time.Second, "how long to work before measuring")
	waitFlag(c, &spec.Wait, client.DefaultWait, "how the processes wait for answers")
	f.StringVar(&spec.Target, "target", "", "the node that answers (default: any, this one first)")
	socketFlag(c, &spec.Socket)
	jsonFlag(c, &asJSON)
	return c
}

// showProgress writes over the last line of a terminal.
func showProgress(done uint64, elapsed time.Duration) {
	line := fmt.Sprintf("%3.0f s  %d messages, %.0f/s", elapsed.Seconds(), done, float64(done)/elapsed.Seconds())
	fmt.Fprintf(os.Stderr, "\r%s%s", line, strings.Repeat(" ", max(0, 60-len(line))))
}

// benchWorker is the command that a worker process of a benchmark runs.
const benchWorker = "bench-worker"

func newBenchWorker() *cobra.Command {
	return &cobra.Command{
		Use:    benchWorker,
		Short:  "Be a worker process of a benchmark",
		Hidden: true,
		Args:   noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if bench.Worker(c.Context(), os.Stdin, os.Stdout) != nil {
				// The parent has been told.
				return statusError(exitFailure)
			}
			return nil
		},
	}
}
