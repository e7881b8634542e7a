package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/internal/nodecert"
)

// stage makes what it takes to find out which faults can be injected.
func (r *run) stage() (err error) {
	if r.program, err = r.options.program(); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp(r.options.dir, "rdmad-torture-"); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(r.dir, 0o755), r.copySelf()); err != nil {
		return err
	}
	if r.options.netns {
		r.wire, err = newNamespaces(r.ctx)
	}
	return err
}

// prepare makes everything that runs before there is load.
func (r *run) prepare() (err error) {
	// What a daemon leaves behind becomes a child of the harness, which ends it.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := r.stage(); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(r.dir, "books"), 0o700); err != nil {
		return err
	}
	if r.board, err = openBoard(r.dir); err != nil {
		return err
	}
	r.spawner = newSpawner()
	if r.options.tls {
		const valid = 30 * 24 * time.Hour
		if _, err := nodecert.Make(nodecert.Plan{Dir: r.dir, Cluster: "torture", Nodes: []string{"a", "b"}, CAValid: valid, NodeValid: valid}); err != nil {
			return err
		}
	}
	return r.startNodes()
}

// copySelf copies this program to where other users can run it.
func (r *run) copySelf() error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r.self = filepath.Join(r.dir, "torture")
	return os.WriteFile(r.self, program, 0o755)
}

// startNodes starts the proxies and both nodes.
func (r *run) startNodes() error {
	ports, err := sandbox.FreePorts(6)
	if err != nil {
		return err
	}
	plans := [2]nodePlan{}
	for i, name := range []string{"a", "b"} {
		p := &plans[i]
		*p = r.options.plan()
		p.name, p.listen, p.data, p.peer = name, ports[i], ports[2+i], peerOf(name)
		if r.wire != nil {
			p.listen, p.data, p.advertise = wireAddress(i)+":7471", wireAddress(i)+":7472", wireAddress(i)
			plans[1-i].reach = p.listen
		}
	}
	if r.wire == nil {
		if err := r.startProxies(&plans, ports); err != nil {
			return err
		}
	}
	for i := range plans {
		if r.wire != nil {
			plans[i].reach = plans[1-i].listen
		}
		n, err := newNode(r.dir, plans[i])
		if err != nil {
			return err
		}
		if r.wire != nil {
			n.namespace = r.wire.names[i]
		}
		r.nodes = append(r.nodes, n)
		r.inspectors = append(r.inspectors, &inspector{node: n})
		if err := n.start(r.spawner, r.program); err != nil {
			return err
		}
	}
	for i, n := range r.nodes {
		if r.cores[i].pid, err = n.core(r.ctx); err != nil {
			return fmt.Errorf("%w%s", err, n.process.Tail())
		}
	}
	return nil
}

// startProxies puts proxies in front of both nodes. A node advertises for its data another
// loopback address than the one it listens on; the proxy has the same port there.
func (r *run) startProxies(plans *[2]nodePlan, ports []string) error {
	for i := range plans {
		p := &plans[i]
		front, err := newProxy("bootstrap "+p.name, ports[4+i], p.listen)
		if err != nil {
			return err
		}
		r.bootstrap = append(r.bootstrap, front)
		plans[1-i].reach = ports[4+i]
		if r.options.fabric != "tcp" {
			continue
		}
		p.advertise = "127.0.0.2"
		data, err := newProxy("data "+p.name, fmt.Sprintf("127.0.0.2:%d", portOf(p.data)), p.data)
		if err != nil {
			return err
		}
		r.data = append(r.data, data)
	}
	return nil
}

// probe finds out which of some faults can be injected here.
func (r *run) probe(names []string) {
	for i := range faults {
		f := &faults[i]
		if !slices.Contains(names, f.name) {
			continue
		}
		why := ""
		if f.cannot != nil {
			why = f.cannot(r)
		}
		if why == "" {
			r.possible = append(r.possible, f)
			continue
		}
		r.skipped[f.name] = why
	}
}
