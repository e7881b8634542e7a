package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/client"
)

// Node is one rdmad with a configuration in a directory. It may be started and
// stopped any number of times.
type Node struct {
	// Name is the node's name, and Socket where its workers attach.
	Name, Socket string
	// Listen is the address that peers connect to.
	Listen string

	program string
	args    []string // of "rdmad run"
	config  string
	log     string
	process *Process
}

// NewNode writes the configuration of a node into dir. The program is the rdmad
// to run.
func NewNode(program, dir, name, listen string, peers []Peer, s Settings) (*Node, error) {
	n := &Node{
		Name: name, Socket: socketPath(dir, name), Listen: listen,
		program: program, config: filepath.Join(dir, name+".toml"), log: filepath.Join(dir, name+".log"),
	}
	text := configText(name, n.Socket, listen, peers, s)
	if err := os.WriteFile(n.config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure node %s: %w", name, err)
	}
	return n, nil
}

// Serve makes the core serve what "rdmad echo" serves, from the next Start on.
func (n *Node) Serve() { n.args = []string{"--serve"} }

// Start starts the daemon and returns at once; see Ready.
func (n *Node) Start() error {
	p, err := StartProcess("node "+n.Name, n.log, append([]string{n.program, "run", "-c", n.config}, n.args...)...)
	if err != nil {
		return err
	}
	n.process = p
	return nil
}

// Process returns the supervisor's process, or nil before Start.
func (n *Node) Process() *Process { return n.process }

// ErrAddressInUse is wrapped by Ready's error when another program has taken
// the node's address.
var ErrAddressInUse = errors.New("the address is in use")

// Ready waits until the daemon lets workers attach.
func (n *Node) Ready(ctx context.Context) error {
	return n.retry(ctx, "node "+n.Name+" does not let workers attach", func(ctx context.Context) error {
		conn, err := client.Attach(ctx, n.Socket, client.Name("sandbox"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Reaches waits until a call from the node to the target is answered.
func (n *Node) Reaches(ctx context.Context, target string) error {
	return n.retry(ctx, "node "+n.Name+" does not reach "+target, func(ctx context.Context) error {
		conn, err := client.Attach(ctx, n.Socket, client.Name("sandbox"))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Call(ctx, target, []byte("ready?"))
		return err
	})
}

// PIDs are the processes of a node.
type PIDs struct {
	Supervisor int `json:"supervisor"`
	Core       int `json:"core"`
}

// PIDs asks the daemon for its processes.
func (n *Node) PIDs(ctx context.Context) (PIDs, error) {
	var status struct {
		PIDs PIDs `json:"pids"`
	}
	conn, err := client.Attach(ctx, n.Socket, client.Name("sandbox"))
	if err != nil {
		return status.PIDs, err
	}
	defer conn.Close()
	raw, err := conn.Status(ctx)
	if err != nil {
		return status.PIDs, err
	}
	if err := json.Unmarshal(raw, &status); err != nil {
		return status.PIDs, fmt.Errorf("status of node %s: %w", n.Name, err)
	}
	return status.PIDs, nil
}

// Pauses between attempts, and how long one may take.
const (
	retryPause   = 10 * time.Millisecond
	attemptLimit = 10 * time.Second
)

// retry attempts something until it succeeds, the daemon ends, or ctx does.
func (n *Node) retry(ctx context.Context, problem string, attempt func(context.Context) error) error {
	for {
		limited, cancel := context.WithTimeout(ctx, attemptLimit)
		err := attempt(limited)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-n.process.Done():
			if strings.Contains(n.process.Tail(), syscall.EADDRINUSE.Error()) {
				return fmt.Errorf("%w: %w", ErrAddressInUse, n.process.Ended())
			}
			return n.process.Ended()
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w%s", problem, context.Cause(ctx), err, n.process.Tail())
		case <-time.After(retryPause):
		}
	}
}

// stopGrace is how long an orderly stop may take before it counts as a hang: far longer than
// the drain, because the machine may have much else to do.
const stopGrace = 2 * time.Minute

// Stop stops the daemon in an orderly way if it runs.
func (n *Node) Stop() error {
	if n.process == nil {
		return nil
	}
	return n.process.Stop(stopGrace)
}
