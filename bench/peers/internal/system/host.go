package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// Host is where clusters run.
type Host struct {
	// Dir is a directory for sockets, configurations and logs of one cluster.
	Dir string
	// Peers is this program, and Rdmad the rdmad to measure.
	Peers, Rdmad string
}

// Cluster is the processes of a system, without its clients. It belongs to the goroutine that
// started it, which must be locked to its thread: the processes end with that.
type Cluster struct {
	// Address is what Dial needs.
	Address string

	processes []*sandbox.Process
	nodes     []*sandbox.Node
}

const (
	// startLimit bounds a start, and stopGrace how long each process gets to end.
	startLimit = time.Minute
	stopGrace  = 30 * time.Second
	// retryPause lies between two attempts to reach a process that starts.
	retryPause = 10 * time.Millisecond
	// portTries is how often ports are chosen anew when somebody else has taken one.
	portTries = 5
)

// PIDs returns the processes that the cluster started; their children are not among them.
func (c *Cluster) PIDs() []int {
	var pids []int
	for _, p := range c.all() {
		pids = append(pids, p.PID())
	}
	return pids
}

func (c *Cluster) all() []*sandbox.Process {
	var all []*sandbox.Process
	for _, n := range c.nodes {
		if n.Process() != nil {
			all = append(all, n.Process())
		}
	}
	return append(all, c.processes...)
}

// Ended returns what has ended before its time, or nil.
func (c *Cluster) Ended() error {
	var errs []error
	for _, p := range c.all() {
		errs = append(errs, p.Ended())
	}
	return errors.Join(errs...)
}

// Stop ends all processes, those that were started last first.
func (c *Cluster) Stop() error {
	var errs []error
	all := c.all()
	for i := range all {
		if p := all[len(all)-1-i]; p.Alive() {
			errs = append(errs, p.Stop(2*stopGrace))
		}
	}
	return errors.Join(errs...)
}

// Gone reports whether all processes of the system have ended.
func (c *Cluster) Gone() bool {
	return c == nil || !slices.ContainsFunc(c.all(), (*sandbox.Process).Alive)
}

// serve adds a process of this program.
func (c *Cluster) serve(h Host, system, role, address string) error {
	p, err := sandbox.StartProcess(system+"/"+role, filepath.Join(h.Dir, role+".log"), h.Peers, "serve", "--system", system, "--role", role, "--address", address)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

// ready waits until try succeeds.
func (c *Cluster) ready(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %v", startLimit))
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ended := c.Ended(); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(retryPause):
		}
	}
}

// answers waits until the service echoes.
func (c *Cluster) answers(ctx context.Context, dial func(context.Context, string, Need) (Session, error)) error {
	ping := []byte("ready?")
	return c.ready(ctx, func(ctx context.Context) error {
		s, err := dial(ctx, c.Address, Need{Op: Echo, Depth: 1, Request: len(ping), Answer: len(ping)})
		if err != nil {
			return err
		}
		answer, err := Once(s, ping)
		if err == nil && string(answer) != string(ping) {
			err = fmt.Errorf("an echo of %q is %q", ping, answer)
		}
		return errors.Join(err, s.Close())
	})
}

// Once makes one call with a session that has no other under way.
func Once(s Session, req []byte) ([]byte, error) {
	switch s := s.(type) {
	case Caller:
		return s.Call(req, nil)
	case Pipe:
		if err := s.Send(req); err != nil {
			return nil, err
		}
		answer, _, err := s.Receive()
		return answer, err
	}
	return nil, fmt.Errorf("a %T makes no calls", s)
}

// oneService is a system whose clients reach its only process directly, by a Unix socket or by
// TCP on a port that nobody uses.
func oneService(name, network string, dial func(context.Context, string, Need) (Session, error), serve func(context.Context, string) error) *System {
	start := func(ctx context.Context, h Host, address string) (*Cluster, error) {
		c := &Cluster{Address: address}
		if err := c.serve(h, name, "service", address); err != nil {
			return c, err
		}
		return c, c.answers(ctx, dial)
	}
	return &System{
		Name: name,
		Dial: dial,
		Start: func(ctx context.Context, h Host) (*Cluster, error) {
			if network == "unix" {
				return start(ctx, h, filepath.Join(h.Dir, "socket"))
			}
			return onFreePort(ctx, func(ctx context.Context, address string) (*Cluster, error) { return start(ctx, h, address) })
		},
		Serve: map[string]func(context.Context, string) error{"service": serve},
	}
}

// onFreePort starts a cluster of one process on a port that nobody uses. Another program may
// take it in between: then it tries again.
func onFreePort(ctx context.Context, start func(ctx context.Context, address string) (*Cluster, error)) (*Cluster, error) {
	for try := 1; ; try++ {
		ports, err := sandbox.FreePorts(1)
		if err != nil {
			return nil, err
		}
		c, err := start(ctx, ports[0])
		if err == nil || try == portTries {
			return c, err
		}
		if c != nil {
			if stopped := c.Stop(); stopped != nil && c.Ended() == nil {
				return nil, errors.Join(err, stopped)
			}
		}
	}
}
