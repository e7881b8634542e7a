package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmad/rdmad/cmd/rdmad/perfrun"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/internal/perf/plot"
	perfreport "github.com/rdmad/rdmad/internal/perf/report"
	"github.com/rdmad/rdmad/internal/version"
)

func newPerf() *cobra.Command {
	c := &cobra.Command{
		Use:   "perf",
		Short: "Measure a fabric itself, between two machines or on one",
		Long: "Programs that use a fabric as the daemon does, without the daemon: to see what a network can do, to compare with perftest and\n" +
			"fi_pingpong, and to find out whether a fabric works at all. Without a HOST a command is the server, which waits for one\n" +
			"client, does what that asks for, and ends; with --self it is both. Letters of flags mean what they mean to perftest.\n\n" +
			"Exit status: 0, 1 if the run failed (the other side died, data was wrong), 2 for what cannot be done, in which case nothing was\n" +
			"written, 3 if a threshold was missed.",
		Example: "  rdmad perf pingpong              # on one machine\n" +
			"  rdmad perf pingpong node1        # on another\n" +
			"  rdmad perf blast --self --op write -a",
		RunE: chooseCommand,
	}
	c.AddCommand(newPerfPingpong(), newPerfBlast(), newPerfRandomfill(), newPerfRC(), newPerfAtomics())
	return c
}

// perfCommand is what the commands of "rdmad perf" have in common.
type perfCommand struct {
	options perfrun.Options
}

// newPerfCommand makes the command of a tool with the flags that all have. Made runs in the
// client, the server and the child, and returns the tool as the flags have it; results are
// handed to after, nil for none, when they have been written.
func newPerfCommand(use string, made func(*cobra.Command) (perf.Tool, error), after func(result any) error) *cobra.Command {
	p := new(perfCommand)
	c := &cobra.Command{
		Use:  use + " [HOST]",
		Args: wantArgs(0, 1, "at most one: the host of the server"),
		RunE: func(c *cobra.Command, args []string) error {
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("perf: %w", err)
			}
			o := &p.options
			o.Version, o.Program, o.Arguments = version.Own().Version, program, []string{"perf", use}
			o.Out, o.Remarks = c.OutOrStdout(), os.Stderr
			if len(args) > 0 {
				if o.Host = args[0]; o.Host == "" {
					return usagef("an empty host: want the one of the server")
				}
			}
			tool, err := made(c)
			if err != nil {
				return err
			}
			if o.Host == "" && !o.Self {
				if err := refuseResultFlags(c); err != nil {
					return err
				}
			}
			result, err := perfrun.Run(c.Context(), *o, tool)
			if err == nil && after != nil && result != nil {
				err = after(result)
			}
			return err
		},
	}
	p.flags(c)
	return c
}

// resultFlags are about results, which only clients have.
var resultFlags = []string{"json", "plot", "max-p99", "min-bw", "min-msgrate"}

// refuseResultFlags refuses flags that a server would have to ignore: a threshold that nobody looks after is never missed.
func refuseResultFlags(c *cobra.Command) error {
	for _, name := range resultFlags {
		if c.Flags().Changed(name) { // which no flag is that the command does not have
			return usagef("--%s: a server has no result: give it to the client, which is started with the server's HOST, or measure on this machine with --self", name)
		}
	}
	return nil
}

func (p *perfCommand) flags(c *cobra.Command) {
	f, o := c.Flags(), &p.options
	choiceFlag(c, &o.Fabric.Name, "fabric", "tcp", "what moves the data", perfrun.Fabrics...)
	f.StringVar(&o.Fabric.Provider, "provider", "", "libfabric's provider, such as shm (default: tcp;ofi_rxm)")
	f.StringVarP(&o.Fabric.Device, "device", "d", "", "the RDMA device, or libfabric's domain (default: the first that will do)")
	f.IntVarP(&o.Fabric.Port, "ib-port", "i", 0, "the port of the RDMA device (default: the first that is active)")
	f.IntVarP(&o.Fabric.GIDIndex, "gid-index", "x", -1, "the index of its GID (default: the best, see: rdmad devices)")
	f.IntVarP(&o.Fabric.MTU, "mtu", "m", 0, "the path MTU of RDMA in bytes: 256 to 4096 (default: the port's)")
	f.BoolVarP(&o.Fabric.CM, "rdma-cm", "R", false, "connect by the RDMA connection manager")
	f.StringVar(&o.Fabric.Source, "source", "", "the address of this machine for data (default: the one of the control connection)")
	f.IntVarP(&o.Port, "port", "p", link.DefaultPort, "the port of the server's control connection")
	f.StringVar(&o.Listen, "listen", "", "the address where a server waits (default: all of the machine)")
	f.BoolVar(&o.Self, "self", false, "measure on this machine: start the server, too")
	f.BoolVar(&o.Child, "child", false, "be the server of --self")
	f.StringVar(&o.Member, "member", "", "be one of the clients of a client")
	// Programs start them.
	_ = f.MarkHidden("child")
	_ = f.MarkHidden("member")
	jsonFlag(c, &o.JSON)
}

// perfWork are the flags of the tools that measure messages of one size or several.
type perfWork struct {
	perf.Work
	size       byteSize
	all        bool
	duration   perfTime
	thresholds perfreport.Thresholds
	plot       string
}

func (w *perfWork) flags(c *cobra.Command, size int, count uint64) {
	f := c.Flags()
	w.size = byteSize(size)
	f.VarP(&w.size, "size", "s", "size of the messages")
	f.BoolVarP(&w.all, "all", "a", false, "all sizes from 2 bytes to 8 MiB")
	f.Uint64VarP(&w.Count, "iters", "n", count, "messages of each size")
	f.VarP(&w.duration, "duration", "D", "time for each size, instead of --iters; a number is in seconds")
	f.BoolVarP(&w.Event, "events", "e", false, "sleep until there are completions instead of polling for them")
	f.IntVarP(&w.Inline, "inline-size", "I", -1, "largest message that travels in its work request (default: 220 bytes, or what the device takes)")
	f.BoolVar(&w.Verify, "verify", false, "compare every byte that arrives; the figures are those of a run that does so")
	f.Uint64Var(&w.Seed, "seed", 1, "what the content of messages is made of, for --verify")
	f.StringVar(&w.plot, "plot", "", "draw the result into this `file`.svg")
	_ = c.MarkFlagFilename("plot", "svg")
}

// bound adds the flags of thresholds.
func (w *perfWork) bound(c *cobra.Command, latency, bandwidth bool) {
	f := c.Flags()
	if latency {
		f.DurationVar(&w.thresholds.MaxP99, "max-p99", 0, "end with status 3 if the 99th percentile is longer, such as 20us")
	}
	if bandwidth {
		f.Float64Var(&w.thresholds.MinBandwidth, "min-bw", 0, "end with status 3 if the average bandwidth is less, in `MB/sec` of 2^20 bytes")
		f.Float64Var(&w.thresholds.MinMsgRate, "min-msgrate", 0, "end with status 3 if there are less, in `millions` of messages per second")
	}
}

// judged is a result that thresholds can be set for.
type judged interface {
	Judge(perfreport.Thresholds) error
}

// judge draws a result, and looks after its thresholds. A server has none.
func (w *perfWork) judge(result any) error {
	if r, ok := result.(*perfreport.Report); ok && w.plot != "" {
		if err := plot.Write(w.plot, r); err != nil {
			return err
		}
	}
	if r, ok := result.(judged); ok {
		return r.Judge(w.thresholds)
	}
	return nil
}

// checkThresholds refuses those that mean nothing.
func (w *perfWork) checkThresholds() error {
	t := w.thresholds
	if t.MaxP99 < 0 {
		return usagef("--max-p99 %v: want a time of 0 or more", t.MaxP99)
	}
	for flag, v := range map[string]float64{"min-bw": t.MinBandwidth, "min-msgrate": t.MinMsgRate} {
		if !(v >= 0) || math.IsInf(v, 0) {
			return usagef("--%s %v: want a number of 0 or more", flag, v)
		}
	}
	return nil
}

// work returns what the flags say.
func (w *perfWork) work(c *cobra.Command) (perf.Work, error) {
	f := c.Flags()
	if w.all && f.Changed("size") {
		return w.Work, usagef("--all and --size: only one can say how long messages are")
	}
	if f.Changed("duration") {
		if f.Changed("iters") {
			return w.Work, usagef("--iters and --duration: only one can end the run")
		}
		w.Count = 0
	}
	if f.Changed("iters") && w.Count == 0 {
		return w.Work, usagef("--iters 0: want 1 to %d", perf.MaxCount)
	}
	if f.Changed("inline-size") && w.Inline < 0 {
		return w.Work, usagef("--inline-size %d: want 0 or more", w.Inline)
	}
	if err := w.checkThresholds(); err != nil {
		return w.Work, err
	}
	if w.plot != "" {
		if err := plot.Check(w.plot); err != nil {
			return w.Work, err
		}
	}
	w.Duration = time.Duration(w.duration)
	w.Sizes = []int{int(w.size)}
	if w.all {
		w.Sizes = perf.Sweep()
	}
	return w.Work, nil
}

// perfTime is a flag for a time: perftest's number of seconds, or with a unit.
type perfTime time.Duration

// Set implements pflag.Value.
func (d *perfTime) Set(text string) error {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		*d = perfTime(time.Duration(n) * time.Second)
		return nil
	}
	v, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil || v <= 0 {
		return fmt.Errorf("want a time such as 10s, or a whole number of seconds")
	}
	*d = perfTime(v)
	return nil
}

// String implements pflag.Value.
func (d *perfTime) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (*perfTime) Type() string { return "time" }
