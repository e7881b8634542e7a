package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric"
)

// conductor is the core's control plane: everything that is not per message.
type conductor struct {
	cfg         *config.Config
	log         zerolog.Logger
	node        string
	incarnation string
	salt        uint32 // of method ids; see methodID
	started     time.Time
	supervisor  int
	provider    string // in use; empty for a node without peers
	fabric      *openFabric
	device      fabric.Device
	agents      []*agent
	agentsDone  sync.WaitGroup
	tags        atomic.Uint64
	refused     atomic.Uint64 // connections that broke a protocol before they were anybody

	ctx    context.Context // ends when the core stops
	cancel context.CancelFunc
	tasks  sync.WaitGroup // every goroutine of the conductor
	// spawning guards stopped: no task may start once stop waits for them.
	spawning sync.Mutex
	stopped  bool

	mu       sync.Mutex
	domains  []*domain
	links    map[string]*link
	draining bool
	// changed is closed and replaced whenever a link or a directory changes.
	changed  chan struct{}
	closers  []func() error // listeners, closed first
	attached map[*worker]struct{}
}

// newConductor opens the fabric and starts the agents and domains.
func newConductor(cfg *config.Config, supervisor int, log zerolog.Logger) (_ *conductor, err error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("incarnation: %w", err)
	}
	c := &conductor{
		cfg: cfg, log: log, node: cfg.Node.Name, incarnation: hex.EncodeToString(id[:]),
		salt:    binary.LittleEndian.Uint32(id[:]),
		started: time.Now(), supervisor: supervisor, links: make(map[string]*link),
		changed: make(chan struct{}), attached: make(map[*worker]struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	// A node without peers needs no fabric: its lanes are all local.
	if len(cfg.Peers) > 0 {
		if c.fabric, err = newFabricOpener(cfg, log).open(); err != nil {
			return nil, err
		}
		c.device, c.provider = c.fabric.device, c.fabric.name
	}
	idle := idleStrategy{busy: cfg.Agent.Idle == "busy"}
	if cfg.Agent.Idle == "adaptive" {
		idle.spin = cfg.Agent.Spin
	}
	groupMax := cfg.GroupSend.MaxMessages
	if !cfg.GroupSend.Enabled {
		groupMax = 1
	}
	for i := range cfg.Agent.Count {
		a, err := newAgent(fmt.Sprintf("agent%d", i), idle, groupMax, c.device, log)
		if err != nil {
			return nil, err
		}
		c.agents = append(c.agents, a)
		c.agentsDone.Go(a.run)
	}
	for i, d := range cfg.Domains {
		if err := c.addDomain(d, c.agents[i%len(c.agents)]); err != nil {
			return nil, err
		}
	}
	for _, p := range cfg.Peers {
		c.links[p.Name] = newLink(c, p)
	}
	return c, nil
}

// serve accepts workers on socket and peers on bootstrap (nil: none) until ctx
// ends, then drains and stops.
func (c *conductor) serve(ctx context.Context, socket *net.UnixListener, bootstrap net.Listener) error {
	c.closers = append(c.closers, socket.Close)
	c.spawn(func() { c.acceptWorkers(socket) })
	if bootstrap != nil {
		c.closers = append(c.closers, bootstrap.Close)
		c.spawn(func() { c.acceptPeers(bootstrap) })
	}
	for _, l := range c.links {
		c.spawn(l.dialLoop)
	}
	c.spawn(c.watchFabric)
	<-ctx.Done()
	err := c.drain()
	c.stop()
	return err
}

// spawn runs f as one of the conductor's goroutines. It reports false, and f will
// not run, when the conductor is stopping.
func (c *conductor) spawn(f func()) bool {
	c.spawning.Lock()
	defer c.spawning.Unlock()
	if !c.stopped {
		c.tasks.Go(f)
	}
	return !c.stopped
}

// acceptRetry is how long a listener waits after a failed accept, for example for
// lack of descriptors.
const acceptRetry = 100 * time.Millisecond

// acceptAgain deals with the failure of an accept and reports whether to go on,
// after a pause, or whether the listener is closed.
func (c *conductor) acceptAgain(whom string, err error) bool {
	if c.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return false
	}
	c.log.Error().Err(err).Msg("accepting " + whom)
	return sleep(c.ctx, acceptRetry)
}

// notify wakes everybody who waits for a link or a service to appear. mu is held.
func (c *conductor) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// drainStep is how often drain looks whether the domains are quiet.
const drainStep = 5 * time.Millisecond

// drain lets what is under way finish: no new requests from this node's workers
// or from peers, answers to what has been taken, for at most the configured time.
func (c *conductor) drain() error {
	c.mu.Lock()
	c.draining = true
	c.notify()
	links := c.links
	c.mu.Unlock()
	c.log.Info().Dur("timeout", c.cfg.Node.DrainTimeout).Msg("draining")
	for _, l := range links {
		l.tell(&peerMessage{Type: peerDrain})
	}
	c.eachDomain(func(d *agentDomain) { d.setDraining() })
	deadline := time.NewTimer(c.cfg.Node.DrainTimeout)
	defer deadline.Stop()
	step := time.NewTicker(drainStep)
	defer step.Stop()
	for {
		quiet := true
		c.eachDomain(func(d *agentDomain) { quiet = quiet && d.quiet() })
		busy := c.undrained()
		if quiet && len(busy) == 0 {
			c.log.Info().Msg("drained")
			return nil
		}
		select {
		case <-step.C:
		case <-deadline.C:
			if quiet {
				// Nothing is under way here; a peer that does not answer must
				// not make an orderly stop a failure.
				c.log.Warn().Strs("peers", busy).Msg("peers did not say that they are done with this node")
				return nil
			}
			return errors.New("drain timeout: some requests were still under way")
		}
	}
}

// undrained returns the connected peers that may still have requests on their way
// to this node.
func (c *conductor) undrained() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.links {
		if l.session != nil && !l.drained {
			names = append(names, l.name)
		}
	}
	return names
}

// eachDomain runs f for every domain on its agent's thread, one after the other.
func (c *conductor) eachDomain(f func(*agentDomain)) {
	for _, d := range c.domains {
		d.agent.commands.call(func() { f(d.view) })
	}
}

// stop ends everything and returns when all goroutines have returned.
func (c *conductor) stop() {
	c.cancel()
	for _, f := range c.closers {
		_ = f()
	}
	c.spawning.Lock()
	c.stopped = true
	c.spawning.Unlock()
	for _, l := range c.links {
		l.end(errStopping)
	}
	c.tasks.Wait() // workers are told by serveWorker
	for _, d := range c.domains {
		d.closeLanes()
	}
	for _, a := range c.agents {
		a.commands.do(func() { a.stop = true })
	}
	c.agentsDone.Wait()
	for _, d := range c.domains {
		d.close()
	}
	if c.device != nil {
		if err := c.device.Close(); err != nil {
			c.log.Warn().Err(err).Msg("closing the fabric device")
		}
	}
}

var errStopping = errors.New("stopping")

// pid is the process id of the core.
var pid = os.Getpid()
