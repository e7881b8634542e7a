package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/bench"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/server"
)

// SocketBEnv is the environment variable that names the socket of node b; that
// of node a is in attach.SocketEnv, where every client looks.
const SocketBEnv = "RDMAD_SOCKET_B"

// Options are how a sandbox is made.
type Options struct {
	// Program is the rdmad to run.
	Program string
	// Settings are those of both nodes.
	Settings Settings
	// Wait is how the echo service waits for requests.
	Wait server.Mode
	// Embedded has the core of node b serve what the echo service serves otherwise.
	Embedded bool
	// Keep leaves the directory with configurations and logs behind.
	Keep bool
}

// Sandbox is two connected nodes, a and b, and an echo service on b.
type Sandbox struct {
	// Dir is the directory that holds everything.
	Dir string

	options Options
	a, b    *Node
	echo    *Process
	pids    string
	// older are children that this process had before: of the program that it was, before an exec.
	older []int
}

const (
	// startLimit bounds the whole start.
	startLimit = time.Minute
	// portAttempts is how often ports are chosen anew when a program that came
	// in between has taken one.
	portAttempts = 5
	// echoGrace is how long the echo service gets to end.
	echoGrace = 20 * time.Second
)

// Start starts a sandbox and returns when a call from node a to the service on
// node b was answered. The caller must Close it. All of Start, Command and
// Close belong to one goroutine.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	// The children are told when the thread that started them ends; a locked
	// thread lives as long as its goroutine.
	runtime.LockOSThread()
	if err := adoptOrphans(); err != nil {
		return nil, fmt.Errorf("sandbox: adopt orphans: %w", err)
	}
	dir, err := os.MkdirTemp("", "rdmad-sandbox-")
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil { // $TMPDIR may be relative; node.socket may not, nor what the command finds in its environment
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s := &Sandbox{Dir: dir, options: o, older: childrenOf(os.Getpid())}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: %w", err), s.Close())
	}
	return s, nil
}

func (s *Sandbox) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %v", startLimit))
	defer cancel()
	if s.options.Settings.TLS {
		_, err := nodecert.Make(nodecert.Plan{Dir: s.Dir, Cluster: "sandbox", Nodes: []string{"a", "b"}, CAValid: certValid, NodeValid: certValid})
		if err != nil {
			return fmt.Errorf("certificates: %w", err)
		}
	}
	if err := s.startNodes(ctx); err != nil {
		return err
	}
	if s.options.Embedded {
		if err := s.a.Reaches(ctx, "b/echo/echo"); err != nil {
			return err
		}
		return s.listPIDs(ctx)
	}
	var err error
	s.echo, err = StartProcess("the echo service", filepath.Join(s.Dir, "b.echo.log"), s.options.Program, "echo", "--socket", s.b.Socket, "--wait", s.options.Wait.String())
	if err != nil {
		return err
	}
	served, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-s.echo.Done():
			stop(s.echo.Ended())
		case <-served.Done():
		}
	}()
	if err := s.a.Reaches(served, "b/echo/echo"); err != nil {
		return err
	}
	return s.listPIDs(ctx)
}

// startNodes starts both daemons on ports that are free.
func (s *Sandbox) startNodes(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := s.tryNodes(ctx)
		if err == nil || !errors.Is(err, ErrAddressInUse) || attempt == portAttempts {
			return err
		}
		if err := s.stopNodes(); err != nil {
			return err
		}
	}
}

// certValid is how long the certificates of a sandbox are valid: for longer than the nodes warn ahead.
const certValid = 90 * 24 * time.Hour

func (s *Sandbox) tryNodes(ctx context.Context) error {
	ports, err := FreePorts(2)
	if err != nil {
		return err
	}
	node := func(name, listen string, peer Peer) (*Node, error) {
		return NewNode(s.options.Program, s.Dir, name, listen, []Peer{peer}, s.options.Settings)
	}
	if s.a, err = node("a", ports[0], Peer{"b", ports[1]}); err != nil {
		return err
	}
	if s.b, err = node("b", ports[1], Peer{"a", ports[0]}); err != nil {
		return err
	}
	if s.options.Embedded {
		s.b.Serve()
	}
	for _, n := range []*Node{s.a, s.b} {
		if err := n.Start(); err != nil {
			return err
		}
	}
	for _, n := range []*Node{s.a, s.b} {
		if err := n.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// listPIDs writes down the processes for bench.PIDsEnv.
func (s *Sandbox) listPIDs(ctx context.Context) error {
	var list []string
	for _, n := range []*Node{s.a, s.b} {
		p, err := n.PIDs(ctx)
		if err != nil {
			return err
		}
		list = append(list, fmt.Sprintf("%s.supervisor=%d", n.Name, p.Supervisor), fmt.Sprintf("%s.core=%d", n.Name, p.Core))
	}
	if s.echo != nil {
		list = append(list, fmt.Sprintf("b.echo=%d", s.echo.PID()))
	}
	s.pids = strings.Join(list, ",")
	return nil
}

// Env returns the environment of a process in the sandbox. The directory of the
// program comes first in its PATH.
func (s *Sandbox) Env() []string {
	return append(os.Environ(),
		attach.SocketEnv+"="+s.a.Socket,
		SocketBEnv+"="+s.b.Socket,
		bench.PIDsEnv+"="+s.pids,
		"PATH="+filepath.Dir(s.options.Program)+string(os.PathListSeparator)+os.Getenv("PATH"),
	)
}

// Failed returns what of the sandbox has ended before its time, or nil.
func (s *Sandbox) Failed() error {
	var errs []error
	for _, p := range s.processes() {
		errs = append(errs, p.Ended())
	}
	return errors.Join(errs...)
}

func (s *Sandbox) processes() []*Process {
	var all []*Process
	for _, n := range []*Node{s.a, s.b} {
		if n != nil && n.Process() != nil {
			all = append(all, n.Process())
		}
	}
	if s.echo != nil {
		all = append(all, s.echo)
	}
	return all
}

// Close ends what the command left behind and stops everything in the reverse
// of the order in which it was started. It returns when all processes are gone.
// The error names what did not end as it should.
func (s *Sandbox) Close() error {
	known := slices.Clone(s.older)
	for _, p := range s.processes() {
		known = append(known, p.PID())
	}
	endOrphans(known...)
	var errs []error
	if s.echo != nil && s.echo.Alive() {
		errs = append(errs, s.echo.Stop(echoGrace))
	}
	errs = append(errs, s.stopNodes())
	// Whatever a daemon that was killed left behind.
	endOrphans(s.older...)
	if !s.options.Keep {
		errs = append(errs, os.RemoveAll(s.Dir))
	}
	return errors.Join(errs...)
}

// stopNodes stops the daemons that run, b before a.
func (s *Sandbox) stopNodes() error {
	var errs []error
	for _, n := range []*Node{s.b, s.a} {
		if n != nil && n.Process() != nil && n.Process().Alive() {
			errs = append(errs, n.Stop())
		}
	}
	return errors.Join(errs...)
}
