package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/turnstile"
	"github.com/rdmad/rdmad/shm"
)

// conductor is the core's control plane: everything that is not per message.
type conductor struct {
	// cfg is what the core was started with, and reloaded what counts now, if that differs;
	// see live.
	cfg      *config.Config
	reloaded atomic.Pointer[config.Config]
	log      zerolog.Logger
	// events is where log writes to, which counts distinct errors; nil: nothing does.
	events *event.Log
	// workerGate bounds how often a process attaches in vain.
	workerGate turnstile.Turnstile
	// attaching are the processes that have connected and not said hello.
	attaching turnstile.Lobby
	// mapping is held by whoever makes, or gives back, the memory of a process: one at a time. Where there are fewer processors than
	// threads, each can lose its own in a call of the kernel, and the Go runtime starts another for it: hundreds of processes that come
	// or go at once would leave a thread of each in the core, for good.
	mapping     sync.Mutex
	node        string
	incarnation string
	core        int64  // tells the cores of the incarnation apart
	salt        uint32 // of method ids; see methodID
	started     time.Time
	supervisor  int
	fabrics     []*fabrics.Fabric // the best first; none for a node without peers
	agents      []*agent.Agent
	agentsDone  sync.WaitGroup
	tags        atomic.Uint64
	counters    *counters.File // may be nil in tests
	uncounted   counters.NodeCounts
	guard       *peerauth.Guard
	refusals    peerauth.Refusals
	depot       *depot.Client // nil: nothing is kept
	orphaned    <-chan struct{}
	// beatEvery is how often the supervisor must know by the pulse that all is well; 0: it need not.
	beatEvery time.Duration
	pulse     *handoff.Pulse
	told      *handoff.Briefing // by the supervisor; may be nil
	// toldAs is the supervisor's digest of the configuration in force, "" if it does not say; nil without a supervisor.
	toldAs   atomic.Pointer[string]
	statuses statusRounds
	askRoom  askRoom
	// identity is what the depot has under handoff.NodeKey; after the start keepIdentity changes it.
	identity    *handoff.Node
	identifying sync.Mutex
	// adopted are the workers that were attached to the core before this one, until
	// serve.
	adopted []*worker

	ctx    context.Context // ends when the core stops
	cancel context.CancelFunc
	tasks  sync.WaitGroup // every goroutine of the conductor
	// spawning guards stopped: no task may start once stop waits for them.
	spawning sync.Mutex
	stopped  bool

	// domains are those that are in use; the list is replaced as a whole when a domain
	// gets new memory. rotating lets one do so at a time.
	domains  atomic.Pointer[[]*domain]
	rotating sync.Mutex
	// serving lets one at a time say whether the node is in service.
	serving sync.Mutex

	mu sync.Mutex
	// links are those of the configured peers; the map is replaced as a whole. formerLinks
	// are those of peers that were configured.
	links, formerLinks map[string]*link
	// forgetting: forgetAgain is to come.
	forgetting bool
	draining   bool // about to stop
	// outage is nil while the node is in service. drains counts how often it has stopped to
	// take requests.
	outage *outage
	drains uint64
	// changed is closed and replaced whenever a link or a directory changes.
	changed  chan struct{}
	closers  []func() error // listeners, closed first
	attached map[*worker]struct{}
	// traces are those that are under way.
	traces map[*traceRun]struct{}
	// retired are domains whose memory was replaced and is not unmapped yet, outcasts the
	// processes that were disconnected for what they did, while they live.
	retired map[*domain]struct{}
	// held are domains whose memory was replaced and that have holders.
	held     map[*domain]struct{}
	outcasts map[int]int
	// regionRoom is how many regions there may be in all domains.
	regionRoom config.RegionRoom
	// tenancy is what there is of services in this process.
	tenancy tenancy
}

// newConductor opens the fabric and starts the agents and domains. It adopts what the
// core before it has left in the depot, if it can; the items are closed.
//
// Orphaned is closed when the supervisor is gone; nil: it stays.
//
// Expecting: services of this process are still to attach; see tenants.
func newConductor(cfg *config.Config, supervisor int, orphaned <-chan struct{}, store *depot.Client, items []depot.Item, expecting bool, log zerolog.Logger) (_ *conductor, err error) {
	c := &conductor{
		cfg: cfg, log: log, node: cfg.Node.Name, depot: store, core: shm.Nanotime(),
		started: time.Now(), supervisor: supervisor, orphaned: orphaned, links: make(map[string]*link), formerLinks: make(map[string]*link),
		changed: make(chan struct{}), attached: make(map[*worker]struct{}), traces: make(map[*traceRun]struct{}),
		retired: make(map[*domain]struct{}), held: make(map[*domain]struct{}), outcasts: make(map[int]int), regionRoom: regionRoom(),
	}
	c.tenancy.expecting.Store(expecting)
	left, err := c.takeOver(items)
	if err != nil {
		return nil, err
	}
	defer left.close()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			// Nothing is given up: the process ends, and the next core may do better.
			c.cancel()
		}
	}()
	// What has changed on this machine since the first core has started is no reason to end: attached processes go on.
	again := len(items) > 0
	if c.guard, err = peerauth.NewGuard(cfg, again, log); err != nil {
		return nil, err
	}
	if err := c.openFabrics(again); err != nil {
		return nil, err
	}
	if err := c.openCounters(); err != nil {
		return nil, err
	}
	if err := c.startAgents(again); err != nil {
		return nil, err
	}
	for i, d := range cfg.Domains {
		if err := c.addDomain(d, c.agents[i%len(c.agents)], left.domains[d.Name]); err != nil {
			return nil, err
		}
	}
	for _, p := range cfg.Peers {
		c.links[p.Name] = newLink(c, p)
	}
	return c, nil
}

// openFabrics opens what moves data to peers; again: as another core has done before. A node without peers needs no fabric: its lanes
// are all local.
func (c *conductor) openFabrics(again bool) (err error) {
	if len(c.cfg.Peers) == 0 {
		return nil
	}
	o := fabrics.NewOpener(c.cfg, c.log, c.dataSecurity())
	o.Again = again
	if c.fabrics, err = o.Open(); err != nil {
		return err
	}
	c.warnOfPlainData()
	return nil
}

// startAgents makes the agents and has them run; again: another core had some.
func (c *conductor) startAgents(again bool) error {
	var devices []fabric.Device
	for _, f := range c.fabrics {
		devices = append(devices, f.Device)
	}
	cfg, idle, groupMax := c.cfg, agent.IdleFor(c.cfg), c.cfg.GroupSend.MaxMessages
	if !cfg.GroupSend.Enabled {
		groupMax = 1
	}
	if err := checkProcessors(cfg.Agent.CPUs); err != nil && !again { // else settle says it
		return err
	}
	for i := range cfg.Agent.Count {
		a, err := agent.New(fmt.Sprintf("agent%d", i), idle, groupMax, devices, c.log)
		if err != nil {
			return err
		}
		a.Processor = processorOf(cfg.Agent.CPUs, i)
		if cfg.Agent.IOUring {
			a.Wakes = shm.NewWakes()
		}
		if err := a.DelayGroups(cfg.GroupSend.MaxGroupDelay); err != nil {
			a.Release()
			return err
		}
		a.CountIn(c.counters.Agent(i))
		c.agents = append(c.agents, a)
		a.Start(&c.agentsDone)
	}
	return nil
}

// open lets workers attach on socket, and those that are attached go on.
func (c *conductor) open(socket *net.UnixListener) {
	c.closers = append(c.closers, socket.Close)
	c.holdAdopted() // before there can be a session
	c.adoptService()
	for _, w := range c.adopted {
		if !w.welcomed {
			w.mu.Lock() // no lane before the welcome
		}
		c.spawn(func() { c.serveAdopted(w) })
	}
	c.adopted = nil
	c.spawn(func() { c.acceptWorkers(socket) })
}

// serve is called after open. It accepts peers on bootstrap (nil: none) until ctx ends, or
// a tenant has left, and then drains and stops.
//
// A handOver ends it at once, with errHandOver, or when the tenants have finished what they have
// begun: the agents stop after the cycle that they are in, and nobody is told.
func (c *conductor) serve(ctx context.Context, bootstrap net.Listener, handOver <-chan os.Signal) error {
	if bootstrap != nil {
		c.closers = append(c.closers, bootstrap.Close)
		c.spawn(func() { c.acceptPeers(bootstrap) })
	}
	for _, l := range c.allLinks() {
		ctx := l.ctx
		c.spawn(func() { l.dialLoop(ctx) })
	}
	c.spawn(c.applyReloads)
	if len(c.fabrics) > 0 {
		c.spawn(func() { c.fabrics[0].Watch(c.ctx, &c.log) })
	}
	c.spawn(c.keepErrors)
	c.spawn(func() { c.guard.Watch(c.ctx) })
	follows := false
	select {
	case <-handOver:
		follows = true
	case err := <-c.tenancy.left:
		return err // the next core begins with new ones
	case <-ctx.Done():
		select { // the node's stop may reach a core whose supervisor is gone already, and followed by one that has all it needs
		case <-handOver:
			follows = true
		default:
		}
	}
	if follows {
		c.vacate()
		c.haltAgents()
		return errHandOver
	}
	err := c.drain()
	c.stop()
	return err
}

// haltTimeout bounds how long a core that hands over waits for its agents: one that
// does not come to rest is as if it had been killed.
const haltTimeout = time.Second

// haltAgents makes the agents stop between two cycles, for ever: the process is about to end,
// and whoever asks one of them something until then waits.
func (c *conductor) haltAgents() {
	resting := make(chan struct{}, len(c.agents))
	for _, a := range c.agents {
		a.Commands.Do(func() {
			resting <- struct{}{}
			select {}
		})
	}
	late := time.After(haltTimeout)
	for range c.agents {
		select {
		case <-resting:
		case <-late:
			return
		}
	}
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
	event.AcceptFailed.On(&c.log).Err(err).Msg("accepting " + whom)
	return sleep(c.ctx, acceptRetry)
}

// notify wakes everybody who waits for a link or a service to appear. mu is held.
func (c *conductor) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
	c.countPeers()
}

// drainStep is how often drain looks whether the domains are quiet.
const drainStep = 5 * time.Millisecond

// drain lets what is under way finish: no new requests from this node's workers
// or from peers, answers to what has been taken, for at most the configured time.
func (c *conductor) drain() error {
	c.mu.Lock()
	c.draining = true
	if c.outage == nil {
		c.beginDrain()
	}
	c.notify()
	c.mu.Unlock()
	c.log.Info().Dur("timeout", c.live().Node.DrainTimeout).Msg("draining")
	c.tellPeersOfService()
	c.eachDomain(func(d *agent.Domain) { d.SetDraining() })
	deadline := time.NewTimer(c.live().Node.DrainTimeout)
	defer deadline.Stop()
	step := time.NewTicker(drainStep)
	defer step.Stop()
	for late := false; ; {
		quiet := true
		c.eachDomain(func(d *agent.Domain) {
			d.SetDraining() // also on lanes that were opened again since
			quiet = quiet && d.Quiet()
		})
		busy := c.awaited()
		if quiet && len(busy) == 0 {
			c.log.Info().Msg("drained")
			return nil
		}
		switch {
		case late && quiet:
			// Nothing is under way here; a peer that does not answer must
			// not make an orderly stop a failure.
			event.DrainPeers.On(&c.log).Strs("peers", busy).Msg("peers did not say that they are done with this node")
			return nil
		case late:
			return errUndrained
		}
		select {
		case <-step.C:
		case <-deadline.C:
			late = true // as things are now, and not as they were before this wait
		}
	}
}

// eachDomain runs f for every domain on its agent's thread, one after the other.
func (c *conductor) eachDomain(f func(*agent.Domain)) {
	for _, d := range c.allDomains() {
		d.agent.Commands.Call(func() { f(d.view) })
	}
}

// stop ends everything and returns when all goroutines have returned.
func (c *conductor) stop() {
	defer c.beat()()
	c.cancel()
	for _, f := range c.closers {
		_ = f()
	}
	c.spawning.Lock()
	c.stopped = true
	c.spawning.Unlock()
	for _, l := range c.allLinks() {
		l.end(errStopping)
	}
	c.tasks.Wait() // workers are told by serveWorker
	for _, d := range c.allDomains() {
		d.closeLanes()
	}
	for _, a := range c.agents {
		a.Commands.Do(func() { a.Stop = true })
	}
	c.agentsDone.Wait()
	for _, d := range c.allDomains() {
		d.close()
	}
	for d := range c.retired {
		d.close()
	}
	for _, f := range c.fabrics {
		if err := f.Device.Close(); err != nil {
			event.FabricClose.On(&c.log).Err(err).Str("provider", f.Name).Msg("closing the fabric device")
		}
	}
	if err := c.counters.Close(); err != nil {
		event.CountersLeft.On(&c.log).Err(err).Msg("closing the counters")
	}
}

var errStopping = errors.New("stopping")

// ownPID is the process id of the core.
var ownPID = os.Getpid()
