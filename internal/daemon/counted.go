package daemon

import (
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/version"
)

const (
	// maxLaneRows and serviceRows bound the rows of the file of counters: it is memory that
	// is there for good.
	maxLaneRows = 1024
	serviceRows = 256
	// spareRows are for the lanes of peers that a reload adds.
	spareRows = 64
)

// openCounters makes the file of counters. The daemon goes on without it.
func (c *conductor) openCounters() error {
	id := counters.Identity{
		Node: c.node, Program: version.Version, Incarnation: c.incarnation, Digest: c.cfg.Digest(), Supervisor: c.supervisor, Started: c.started,
	}
	// Lanes to and from each peer, which may want more of them than this node, and to itself.
	perClass := len(c.cfg.Peers)*2*c.cfg.Lanes.PerPeer + c.cfg.Lanes.PerPeer
	rows := counters.Rows{
		Agents: c.cfg.Agent.Count, Services: serviceRows,
		Lanes: min(spareRows+len(c.cfg.Domains)*len(c.cfg.Classes)*perClass, maxLaneRows),
	}
	var err error
	if path := c.cfg.CountersPath(); path != "" {
		if c.counters, err = counters.Create(path, c.cfg.Observe.CountersMode, id, rows); err != nil {
			event.CountersNone.On(&c.log).Err(err).Msg("the counters are not kept in a file (observe.counters); everything else works")
		}
	}
	if c.counters == nil {
		if c.counters, err = counters.New(id, rows); err != nil {
			return err
		}
	}
	n := c.counts()
	n.Peers = uint64(len(c.cfg.Peers))
	if len(c.fabrics) > 0 && c.fabrics[0].Fallback != "" {
		n.FabricFallback = 1
	}
	return nil
}

// recount notes that another configuration is in force.
func (c *conductor) recount(cfg *config.Config) {
	atomic.StoreUint64(&c.counts().Peers, uint64(len(cfg.Peers)))
	if c.counters != nil {
		c.counters.SetDigest(cfg.Digest())
	}
	c.mu.Lock()
	c.countPeers()
	c.mu.Unlock()
}

// counts returns the counters of the node: use sync/atomic.
func (c *conductor) counts() *counters.NodeCounts {
	if c.counters == nil {
		return &c.uncounted
	}
	return c.counters.Node()
}

// countWorkers and countPeers say how many there are; mu is held.
func (c *conductor) countWorkers() {
	atomic.StoreUint64(&c.counts().Workers, uint64(len(c.attached)))
}

func (c *conductor) countPeers() {
	n, draining, state := 0, uint64(0), counters.Running
	for _, l := range c.links {
		if l.session != nil {
			n++
		}
	}
	if c.drainsNow() {
		draining, state = 1, counters.Draining
	}
	if c.counters != nil {
		c.counters.SetState(state)
	}
	atomic.StoreUint64(&c.counts().PeersConnected, uint64(n))
	atomic.StoreUint64(&c.counts().Draining, draining)
}

// sums returns the counters of the node that only grow, by name.
func (c *conductor) sums() map[string]uint64 {
	n := c.counts()
	return map[string]uint64{
		"refused_connections": atomic.LoadUint64(&n.RefusedConnections), "struck_out": atomic.LoadUint64(&n.StruckOut),
		"rotations": atomic.LoadUint64(&n.Rotations), "workers_attached": atomic.LoadUint64(&n.WorkersAttached),
		"worker_dead": atomic.LoadUint64(&n.WorkersDead), "links_made": atomic.LoadUint64(&n.LinksMade), "links_lost": atomic.LoadUint64(&n.LinksLost),
		"reconnects": atomic.LoadUint64(&n.Reconnects),
	}
}

// rowOf returns what is counted of a lane.
func (d *domain) rowOf(l *laneInfo, direction counters.Direction) *counters.Lane {
	c := d.conductor
	if c.counters == nil {
		return new(counters.Lane)
	}
	id := counters.LaneID{Domain: d.name, Peer: l.Peer, Class: l.Class, Number: l.Number, Direction: direction}
	return c.counters.Lane(id, c.agentNumber(d.agent), l.Geometry.Slots, l.Geometry.SlotSize)
}

// rowFor returns what is counted of a method.
func (d *domain) rowFor(m methodKey) *counters.Service {
	if d.conductor.counters == nil {
		return new(counters.Service)
	}
	return d.conductor.counters.Service(counters.ServiceID{Domain: d.name, Service: m.service, Method: m.method}, d.conductor.agentNumber(d.agent))
}

func (c *conductor) agentNumber(a *agent.Agent) int {
	for i, have := range c.agents {
		if have == a {
			return i
		}
	}
	return 0
}
