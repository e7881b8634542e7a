package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are what a run is like.
type options struct {
	duration                          time.Duration
	faults                            []string
	noErrors                          []string
	seed                              uint64
	workers, services, depth, largest int
	fabric, extra, tlsData            string
	tls, netns, json, keep, list      bool
	dir, rdmad                        string
	limits                            map[string]int
	progress                          time.Duration
	// command is a command line that repeats the run.
	command string
	// sabotage makes services get things wrong now and then: the run must fail.
	sabotage bool
}

// errUsage is a wrong command line.
var errUsage = errors.New("wrong command line")

// parseOptions reads a command line. It wraps flag.ErrHelp when help was asked for.
func parseOptions(argv []string, errOut io.Writer) (*options, error) {
	o := &options{limits: map[string]int{}}
	var faults, noErrors string
	f := o.flags(&faults, &noErrors)
	f.SetOutput(errOut)
	if err := f.Parse(argv); err != nil {
		return nil, err
	}
	if o.seed == 0 {
		o.seed = rand.Uint64N(1<<32-1) + 1
	}
	var err error
	if o.faults, err = chooseFaults(faults); err != nil {
		return nil, err
	}
	if noErrors != "" {
		if o.noErrors, err = chooseFaults(noErrors); err != nil {
			return nil, err
		}
	}
	if o.dir, err = filepath.Abs(cmp.Or(o.dir, os.TempDir())); err != nil { // $TMPDIR may be relative, too
		return nil, err
	}
	o.command = "bin/torture"
	f.Visit(func(g *flag.Flag) {
		if g.Name != "seed" && g.Name != "dir" && g.Name != "rdmad" {
			o.command += fmt.Sprintf(" --%s=%s", g.Name, quote(g, o))
		}
	})
	o.command += fmt.Sprintf(" --seed=%d", o.seed)
	return o, o.check(f.Args())
}

// flags are the flags, which set options and two lists of faults.
func (o *options) flags(faults, noErrors *string) *flag.FlagSet {
	f := flag.NewFlagSet("torture", flag.ContinueOnError)
	f.DurationVar(&o.duration, "duration", time.Minute, "how long faults are injected, unless all limits are reached before")
	f.StringVar(faults, "faults", "all", "the faults to inject, with commas between them; -NAME leaves one out")
	f.StringVar(noErrors, "no-errors", "", "faults that must not make any call fail, with commas between them; they must be among those that are injected")
	f.Uint64Var(&o.seed, "seed", 0, "where the random choices begin; 0 chooses")
	f.IntVar(&o.workers, "workers", 4, "worker processes, half of them on each node")
	f.IntVar(&o.services, "services", 2, "service processes on each node")
	f.IntVar(&o.depth, "depth", 4, "goroutines of each worker that make calls")
	f.IntVar(&o.largest, "largest", 300<<10, "size of the largest requests and answers in bytes")
	f.StringVar(&o.fabric, "fabric", "tcp", "the fabric of the nodes")
	f.StringVar(&o.extra, "config", "", "lines to append to the configuration of both nodes")
	f.BoolVar(&o.tls, "tls", true, "protect the connection between the nodes with TLS")
	f.StringVar(&o.tlsData, "tls-data", "plain", "tls.data of the nodes' configuration, with --tls")
	f.BoolVar(&o.netns, "netns", false, "put the nodes into network namespaces of their own; needs root")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.BoolVar(&o.keep, "keep", false, "leave the directory with logs and books behind, not only after a failure")
	f.BoolVar(&o.list, "list", false, "list the faults and whether they can be injected here, and inject none")
	f.BoolVar(&o.sabotage, "sabotage", false, "have the services get some things wrong, to see that it is noticed")
	f.StringVar(&o.dir, "dir", "", "where the directory of the run is made (default: the system's for temporary files)")
	f.StringVar(&o.rdmad, "rdmad", "", "the rdmad to run (default: the one beside this program)")
	f.DurationVar(&o.progress, "progress", 5*time.Second, "time between lines that say how far it is")
	for _, g := range groups {
		f.Func(g.flag, fmt.Sprintf("end the run when there have been so many of: %s", strings.Join(g.faults, ", ")), func(s string) error {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 {
				return errors.New("not a number of at least 1")
			}
			o.limits[g.flag] = n
			return nil
		})
	}
	return f
}

// check says what is wrong with the options, and with what is left of the command line behind them.
func (o *options) check(rest []string) error {
	for _, name := range o.noErrors {
		if !slices.Contains(o.faults, name) {
			return fmt.Errorf("%w: --no-errors=%s shows nothing, since --faults leaves it out", errUsage, name)
		}
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%w: what is %q?", errUsage, rest[0])
	case o.workers < 2 || o.services < 1 || o.depth < 1:
		return fmt.Errorf("%w: at least two workers, one service and a depth of one are needed", errUsage)
	case o.duration < 0 || o.progress <= 0:
		return fmt.Errorf("%w: --duration is not less than 0, and --progress more", errUsage)
	case o.largest < 1000 || o.largest > 1<<20:
		return fmt.Errorf("%w: the largest messages have 1000 to %d bytes", errUsage, 1<<20)
	}
	return o.plan().check()
}

// plan is what the configurations of both nodes have in common.
func (o *options) plan() nodePlan {
	return nodePlan{fabric: o.fabric, tls: o.tls, tlsData: o.tlsData, hostile: hostileUser(), extra: o.extra}
}

// quote returns a flag's value as a shell takes it.
func quote(g *flag.Flag, o *options) string {
	v := g.Value.String()
	if n, ok := o.limits[g.Name]; ok {
		v = fmt.Sprint(n)
	}
	if strings.ContainsAny(v, " \t\n'\"\\$") {
		return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'"
	}
	return v
}

// chooseFaults reads a list of faults.
func chooseFaults(list string) ([]string, error) {
	var all, chosen []string
	for _, f := range faults {
		all = append(all, f.name)
	}
	for i, name := range strings.Split(list, ",") {
		name, without := strings.CutPrefix(name, "-")
		if without && i == 0 {
			chosen = slices.Clone(all)
		}
		switch {
		case name == "all":
			chosen = slices.Clone(all)
		case name == "none":
			chosen = nil
		case !slices.Contains(all, name):
			return nil, fmt.Errorf("%w: there is no fault %q; there are %s", errUsage, name, strings.Join(all, ", "))
		case without:
			chosen = slices.DeleteFunc(chosen, func(s string) bool { return s == name })
		case !slices.Contains(chosen, name):
			chosen = append(chosen, name)
		}
	}
	return chosen, nil
}

// program returns the rdmad to run.
func (o *options) program() (string, error) {
	path := o.rdmad
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), "rdmad")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w (make build, or say --rdmad)", err)
	}
	return path, nil
}
