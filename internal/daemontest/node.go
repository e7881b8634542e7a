package daemontest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/supervisor"
)

// LogEnv is the environment variable that sets the log level of the nodes;
// without it only the cores log, and only errors.
const LogEnv = "RDMAD_TEST_LOG"

// Node is a daemon: a supervisor in this process and its core.
type Node struct {
	// Name is the node's name.
	Name string
	// Socket is where its workers attach.
	Socket string

	config []byte

	mu   sync.Mutex
	stop context.CancelFunc // nil while the node is down
	done chan error
}

// Nodes are two nodes, called a and b, that know each other.
type Nodes struct {
	// A and B are the nodes.
	A, B *Node
	dir  string
}

// Start starts two nodes and waits until they are connected. extra is appended to
// the configuration of both. The caller must Stop them.
func Start(extra string) (*Nodes, error) { return StartEach(extra, extra) }

// StartEach is Start with different configurations.
func StartEach(extraA, extraB string) (*Nodes, error) {
	n, err := StartApart(extraA, extraB)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(n.A.Connected("b"), n.B.Connected("a")); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// StartApart is StartEach for nodes that may never connect: it does not wait for
// that.
func StartApart(extraA, extraB string) (*Nodes, error) {
	dir, err := os.MkdirTemp("", "rdmad")
	if err != nil {
		return nil, err
	}
	n := &Nodes{dir: dir}
	addresses, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	n.A = newNode(dir, "a", addresses[0], "b", addresses[1], extraA)
	n.B = newNode(dir, "b", addresses[1], "a", addresses[0], extraB)
	if err := errors.Join(n.A.Start(), n.B.Start()); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

// Stop stops both nodes. The error says what went wrong, also if it is only that
// something was left behind.
func (n *Nodes) Stop() error {
	err := errors.Join(n.A.Halt(), n.B.Halt())
	left, rerr := os.ReadDir(n.dir)
	if rerr != nil {
		return errors.Join(err, rerr)
	}
	for _, f := range left {
		err = errors.Join(err, fmt.Errorf("the nodes left %s behind", f.Name()))
	}
	return errors.Join(err, os.RemoveAll(n.dir))
}

// freeAddresses returns n different addresses that nobody listens on. The host is a
// loopback address of this process alone: other tests that run at the same time
// must not take the port before the node does.
func freeAddresses(n int) (addresses []string, err error) {
	pid := os.Getpid()
	host := net.IPv4(127, byte(1+pid/62500%250), byte(pid/250%250), byte(1+pid%250))
	for range n {
		l, err := net.Listen("tcp", net.JoinHostPort(host.String(), "0"))
		if err != nil {
			return nil, err
		}
		// Held until all are chosen: a port that is free again can be chosen again.
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// newNode describes a node. extra may have a [fabric] of its own, and begin with keys of
// [node].
func newNode(dir, name, listen, peer, address, extra string) *Node {
	n := &Node{Name: name, Socket: filepath.Join(dir, name+".sock")}
	keys := ""
	for extra != "" && !strings.HasPrefix(extra, "[") {
		var line string
		line, extra, _ = strings.Cut(extra, "\n")
		keys += line + "\n"
	}
	if !strings.Contains(keys, "drain_timeout") {
		keys += "drain_timeout=\"5s\"\n"
	}
	level := os.Getenv(LogEnv)
	if level == "" {
		level = "error"
	}
	if !strings.Contains(extra, "[fabric]") {
		extra = "[fabric]\nlisten=\"127.0.0.1:0\"\n" + extra
	}
	n.config = fmt.Appendf(nil, "[node]\nname=%q\nsocket=%q\nlisten=%q\n%s[log]\nlevel=%q\n[[peer]]\nname=%q\naddress=%q\n%s",
		name, n.Socket, listen, keys, level, peer, address, extra)
	return n
}

// Start starts the node, which must be down, and does not wait for it.
func (n *Node) Start() error {
	source := n.Name + ".toml"
	cfg, err := config.Parse(source, n.config)
	if err != nil {
		return err
	}
	// The argument is that of package node, in whose tests the binary is its core.
	setup := supervisor.Setup{Config: cfg, Source: source, CoreArgs: []string{"--"}}
	if os.Getenv(LogEnv) != "" {
		setup.Log = nodelog.New(cfg, os.Stderr, n.Name+" supervisor")
	} else {
		setup.Log = event.New(io.Discard, event.Options{Process: "supervisor"})
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	n.mu.Lock()
	n.stop, n.done = stop, done
	n.mu.Unlock()
	go func() { done <- supervisor.Run(ctx, setup) }()
	return nil
}

// ErrInUse is supervisor.ErrInUse.
var ErrInUse = supervisor.ErrInUse

// Again runs another daemon with the node's configuration, which must fail.
func Again(n *Node) error {
	source := n.Name + ".toml"
	cfg, err := config.Parse(source, n.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return supervisor.Run(ctx, supervisor.Setup{Config: cfg, Source: source})
}

// Halt stops the node, if it is up, and waits until it has drained and is gone.
func (n *Node) Halt() error {
	n.mu.Lock()
	stop, done := n.stop, n.done
	n.stop = nil
	n.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	if err := <-done; err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// Ended waits until the node has ended by itself and returns its error.
func (n *Node) Ended(ctx context.Context) error {
	n.mu.Lock()
	stop, done := n.stop, n.done
	n.mu.Unlock()
	select {
	case err := <-done:
		stop()
		n.mu.Lock()
		n.stop = nil
		n.mu.Unlock()
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Restart is Halt and Start.
func (n *Node) Restart() error { return errors.Join(n.Halt(), n.Start()) }

// Status returns the daemon's state.
func (n *Node) Status(ctx context.Context) (*status.Node, error) {
	s, err := attach.Open(ctx, n.Socket, attach.Hello{Role: attach.RoleTool, Name: "daemontest"}, attach.Events{})
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
	var st status.Node
	return &st, json.Unmarshal(a.StatusJSON, &st)
}

// Connected waits until the node is up and connected to the named peer.
func (n *Node) Connected(peer string) error {
	return Poll(fmt.Sprintf("node %s connected to %s", n.Name, peer), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		st, err := n.Status(ctx)
		if err != nil {
			return err
		}
		for _, p := range st.Peers {
			if p.Name == peer && p.State == "connected" {
				return nil
			}
		}
		return fmt.Errorf("peers: %+v", st.Peers)
	})
}

// Quiet waits until no request is under way on the node.
func (n *Node) Quiet() error {
	return Poll(fmt.Sprintf("node %s quiet", n.Name), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		st, err := n.Status(ctx)
		if err != nil {
			return err
		}
		for _, l := range st.Lanes {
			if l.Busy != 0 {
				return fmt.Errorf("lane %+v", l)
			}
		}
		return nil
	})
}

// Core returns the process id of the node's core.
func (n *Node) Core() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := n.Status(ctx)
	if err != nil {
		return 0, err
	}
	return st.PIDs.Core, nil
}

// KillCore kills the node's core with SIGKILL; the supervisor starts another.
func (n *Node) KillCore() error {
	pid, err := n.Core()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// Crash makes the whole daemon die, supervisor and core, with all that they knew, and
// starts it again. It returns when workers can attach.
func (n *Node) Crash() error {
	pid, err := n.Core()
	if err != nil {
		return err
	}
	if err := StopProcess(pid); err != nil {
		return err
	}
	n.mu.Lock()
	stop, done := n.stop, n.done
	n.stop = nil
	n.mu.Unlock()
	stop() // the supervisor starts no other, and the core is not there to be told
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	<-done // says that the core was killed
	if err := n.Start(); err != nil {
		return err
	}
	return Poll("node "+n.Name+" lets workers attach", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		_, err := n.Status(ctx)
		return err
	})
}

// StopCore stops the node's core with SIGSTOP and returns when all its threads have
// stopped. resume lets it go on.
func (n *Node) StopCore() (resume func() error, err error) {
	pid, err := n.Core()
	if err != nil {
		return nil, err
	}
	resume = func() error { return syscall.Kill(pid, syscall.SIGCONT) }
	return resume, StopProcess(pid)
}

// StopProcess stops a process and returns when all its threads have stopped.
func StopProcess(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return Poll("process stopped", func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		for _, f := range threads {
			stat, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			// "1234 (name) T ...", and the name can hold anything.
			if after := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(after, []byte(" T")) {
				return fmt.Errorf("%s: %s", f, stat)
			}
		}
		return nil
	})
}
