package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/status"
)

// node is one of the two daemons.
type node struct {
	name, socket, config, log string
	// listen is where its bootstrap listener is, data where its data listener.
	listen, data string
	process      *sandbox.Process
	// namespace is the network namespace that it is in, "" for the harness's own.
	namespace string
	// died is how many deaths of cores there are in the first read bytes of the log.
	died int
	read int64
}

// nodePlan is what the configuration of a node says.
type nodePlan struct {
	name, listen, data string
	// advertise is the host that the peer connects to for data.
	advertise string
	// peer and reach are the other node's name, and where its bootstrap listener is
	// reached.
	peer, reach string
	fabric      string
	tls         bool
	tlsData     string
	// hostile is the user of the second domain, -1 for none.
	hostile int
	extra   string
}

// newNode writes the configuration of a node.
func newNode(dir string, p nodePlan) (*node, error) {
	n := &node{
		name: p.name, socket: filepath.Join(dir, p.name+".sock"), config: filepath.Join(dir, p.name+".toml"), log: filepath.Join(dir, p.name+".log"),
		listen: p.listen, data: p.data,
	}
	if err := os.WriteFile(n.config, []byte(p.text(dir, n.socket)), 0o600); err != nil {
		return nil, fmt.Errorf("configure node %s: %w", p.name, err)
	}
	return n, nil
}

// text returns the configuration of a node whose certificates are in dir.
func (p *nodePlan) text(dir, socket string) string {
	text := fmt.Sprintf("[node]\nname = %q\nsocket = %q\nsocket_mode = \"0666\"\nlisten = %q\ndrain_timeout = \"3s\"\n", p.name, socket, p.listen)
	text += fmt.Sprintf("\n[fabric]\nprovider = %q\nlisten = %q\nadvertise = %q\n", p.fabric, p.data, p.advertise)
	if p.tls {
		f := nodecert.FilesOf(dir, p.name)
		text += fmt.Sprintf("\n[tls]\nmode = \"required\"\ncert = %q\nkey = %q\nca = %q\ndata = %q\n", f.Cert, f.Key, f.CA, p.tlsData)
	}
	text += "\n[log]\nlevel = \"warn\"\n"
	text += fmt.Sprintf("\n[[domain]]\nname = \"main\"\nusers = [%d]\n", os.Getuid())
	if p.hostile >= 0 {
		text += fmt.Sprintf("\n[[domain]]\nname = \"hostile\"\nusers = [%d]\n", p.hostile)
	}
	return text + fmt.Sprintf("\n[[peer]]\nname = %q\naddress = %q\n\n%s\n", p.peer, p.reach, p.extra)
}

// planFlags are the flags for keys of the configuration; others come by --config.
var planFlags = map[string]string{"fabric.provider": "--fabric", "tls.data": "--tls-data"}

// check says what is wrong with what the command line has for the configuration of both nodes.
func (p nodePlan) check() error {
	p.name, p.peer, p.listen, p.data, p.reach = "a", "b", "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
	_, err := config.Parse("", []byte(p.text("/", "/a.sock")))
	var refused config.Errors
	if !errors.As(err, &refused) {
		return err
	}
	first := refused[0]
	return fmt.Errorf("%w: %s: %s", errUsage, cmp.Or(planFlags[first.Key], "--config: "+first.Key), first.Reason)
}

// start starts the daemon and does not wait for it.
func (n *node) start(s *spawner, program string) error {
	argv := inNamespace(n.namespace, program, "run", "-c", n.config)
	return s.do(func() (err error) {
		n.process, err = sandbox.StartProcess("node "+n.name, n.log, argv...)
		return err
	})
}

// statusLimit bounds a question to a daemon, which may be stopped.
const statusLimit = 10 * time.Second

// rawStatus asks the daemon for its state.
func (n *node) rawStatus(ctx context.Context) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	s, err := attach.Open(ctx, n.socket, attach.Hello{Role: attach.RoleTool, Name: "torture"}, attach.Events{})
	if err != nil {
		return nil, err
	}
	defer func() {
		_ = s.Close()
		s.Release()
	}()
	a, err := s.Ask(ctx, &attach.Message{Type: attach.TypeStatus})
	if err != nil {
		return nil, err
	}
	return a.StatusJSON, nil
}

// status is rawStatus, decoded.
func (n *node) status(ctx context.Context) (*status.Node, error) {
	raw, err := n.rawStatus(ctx)
	if err != nil {
		return nil, err
	}
	s := new(status.Node)
	return s, json.Unmarshal(raw, s)
}

// core returns the process id of the core, which is asked for until it answers.
func (n *node) core(ctx context.Context) (pid int, err error) {
	err = await(ctx, recoverLimit, "node "+n.name+" says who its core is", func() error {
		s, err := n.status(ctx)
		if err == nil {
			pid = s.PIDs.Core
		}
		return err
	})
	return pid, err
}

// stop stops the daemon in an orderly way and makes sure that its core is gone.
func (n *node) stop(grace time.Duration) error {
	if n.process == nil {
		return nil
	}
	err := n.process.Stop(grace)
	n.process = nil
	return err
}

const (
	// recoverLimit is how long anything may take to be well again.
	recoverLimit = 2 * time.Minute
	// look is the time between two looks.
	look = 2 * time.Millisecond
)

// await looks until f succeeds.
func await(ctx context.Context, limit time.Duration, what string, f func() error) error {
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(look) {
		if err = f(); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
	return fmt.Errorf("%s: not within %v: %w", what, limit, err)
}

// errNotYet is what await repeats for.
var errNotYet = errors.New("not yet")

// portOf returns the port of an address.
func portOf(address string) int {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	return n
}
