// Command peers compares rdmad with other ways to call a service: the same work, on the
// same machine, in turns, in one run. See docs/performance.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/bench/peers/internal/load"
	"github.com/rdmad/rdmad/bench/peers/internal/report"
	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/run"
	"github.com/rdmad/rdmad/bench/peers/internal/system"
	"github.com/rdmad/rdmad/server/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		if errors.Is(err, errUsage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

// flags are those of a comparison.
type flags struct {
	rdmad, json, plots, revision string
	systems, workloads, settings []string
	rounds                       int
	duration, idle               time.Duration
	quick                        bool
}

func newRoot() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "peers",
		Short: "Compare rdmad with raw sockets, gRPC and NATS",
		Long: "Run the same workloads over several systems, in turns, and print what each needs: messages per\n" +
			"second, latencies, processor time of all its processes. Every answer is checked. Exit status 1\n" +
			"if a system failed, and 2 for a wrong command line.",
		Args:          func(c *cobra.Command, args []string) error { return usage(cobra.NoArgs(c, args)) },
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return compare(c.Context(), &f) },
	}
	p := c.Flags()
	p.StringVar(&f.rdmad, "rdmad", "bin/rdmad", "the rdmad to measure")
	p.StringVar(&f.json, "json", "", "write all results to this `file`, too")
	p.StringVar(&f.plots, "plots", "", "write plots and a page with them into this `directory`, too")
	p.StringVar(&f.revision, "revision", "unknown", "the revision of the repository, for the results")
	p.StringSliceVar(&f.systems, "systems", names(system.All, func(s *system.System) string { return s.Name }), "which systems")
	p.StringSliceVar(&f.workloads, "workloads", names(run.Workloads, func(w run.Workload) string { return w.Name }), "which workloads")
	p.StringSliceVar(&f.settings, "settings", []string{string(run.Free), string(run.Pinned)}, "free: on all processors; pinned: everything on one")
	p.IntVar(&f.rounds, "rounds", 5, "how often everything is measured")
	p.DurationVar(&f.duration, "duration", 250*time.Millisecond, "for how long each time")
	p.DurationVar(&f.idle, "idle", 3*time.Second, "for how long idle systems are looked at")
	p.BoolVar(&f.quick, "quick", false, "measure next to nothing: whether everything works")
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	c.AddCommand(newServe(), newClient(), newRun())
	return c
}

func names[T any](list []T, name func(T) string) []string {
	var all []string
	for _, e := range list {
		all = append(all, name(e))
	}
	return all
}

// newServe is the body of the processes of systems.
func newServe() *cobra.Command {
	var name, role, address string
	c := &cobra.Command{
		Use:    "serve",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(c *cobra.Command, _ []string) error { return system.Serve(c.Context(), name, role, address) },
	}
	c.Flags().StringVar(&name, "system", "", "which system")
	c.Flags().StringVar(&role, "role", "", "which of its processes")
	c.Flags().StringVar(&address, "address", "", "where to listen")
	return c
}

// newClient is the body of client processes.
func newClient() *cobra.Command {
	return &cobra.Command{
		Use:    "client",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// An error has been reported to the parent.
			_ = load.Client(c.Context(), os.Stdin, os.Stdout)
			return nil
		},
	}
}

// newRun is the daemon of a node that has the service in its core: "rdmad run" with it.
func newRun() *cobra.Command {
	var config string
	c := &cobra.Command{
		Use:    "run",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return node.Run(c.Context(), node.Config{File: config}, system.RegisterRdmad)
		},
	}
	c.Flags().StringVarP(&config, "config", "c", "", "the configuration file")
	return c
}

// What --quick makes of workloads with more clients or larger messages.
const (
	quickClients = 12
	quickBytes   = 8 << 20
)

// errFailed ends a comparison in which a system failed.
var errFailed = errors.New("a system failed: see the table")

// errUsage is what a wrong command line leads to.
var errUsage = errors.New("see peers --help")

// usage makes an error, if it is one, one of the command line.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", err, errUsage)
}

// options turns flags into what run wants.
func (f *flags) options() (run.Options, error) {
	o := run.Options{Systems: f.systems, Rounds: f.rounds, Duration: f.duration, Idle: f.idle}
	if f.quick {
		o.Rounds, o.Duration, o.Idle = 1, 2*time.Millisecond, 10*time.Millisecond
		o.MostClients, o.MostBytes = quickClients, quickBytes
	}
	if o.Rounds < 1 || o.Duration <= 0 || o.Idle <= 0 {
		return o, fmt.Errorf("%d rounds of %v, and %v of idleness: want more than none", o.Rounds, o.Duration, o.Idle)
	}
	for _, list := range [][]string{f.systems, f.workloads, f.settings} {
		if len(list) == 0 {
			return o, errors.New("no systems, workloads or settings: want at least one of each")
		}
		for i, name := range list {
			if slices.Contains(list[:i], name) {
				return o, fmt.Errorf("%q is named twice", name)
			}
		}
	}
	for _, name := range f.systems {
		if _, err := system.Find(name); err != nil {
			return o, err
		}
	}
	for _, name := range f.workloads {
		i := slices.IndexFunc(run.Workloads, func(w run.Workload) bool { return w.Name == name })
		if i < 0 {
			return o, fmt.Errorf("there is no workload %q", name)
		}
		o.Workloads = append(o.Workloads, run.Workloads[i])
	}
	for _, name := range f.settings {
		s := run.Setting(name)
		if s != run.Free && s != run.Pinned {
			return o, fmt.Errorf("there is no setting %q", name)
		}
		o.Settings = append(o.Settings, s)
	}
	if !slices.ContainsFunc(o.Workloads, func(w run.Workload) bool {
		return slices.ContainsFunc(w.Systems, func(name string) bool { return slices.Contains(o.Systems, name) })
	}) {
		return o, errors.New("none of these systems does any of these workloads (docs/performance.md says which do)")
	}
	var err error
	if o.Rdmad, err = filepath.Abs(f.rdmad); err != nil {
		return o, err
	}
	if _, err := exec.LookPath(o.Rdmad); err != nil {
		return o, fmt.Errorf("the rdmad to measure: %w", err)
	}
	o.Peers, err = os.Executable()
	return o, err
}

func compare(ctx context.Context, f *flags) (err error) {
	o, err := f.options()
	if err != nil {
		return usage(err)
	}
	part := f.quick || len(o.Systems) < len(system.All) || len(o.Workloads) < len(run.Workloads) || len(o.Settings) < 2
	out, err := openOutput(f, part)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.close()) }()
	begin := time.Now()
	o.Progress = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%4.0f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	machine, err := result.ThisMachine(f.revision)
	if err != nil {
		return err
	}
	r, err := run.Run(ctx, o)
	r.Machine, r.Part = machine, part
	if err := errors.Join(report.Table(os.Stdout, r), report.TargetTable(os.Stdout, r)); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("what was measured until then is printed, and not written to files: %w", err)
	}
	if err := out.write(r); err != nil {
		return err
	}
	if r.Failed() {
		return errFailed
	}
	return nil
}
