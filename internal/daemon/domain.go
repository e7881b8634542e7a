package daemon

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// domain is a trust domain: the workers that share rings, with those rings. The
// maps are guarded by conductor.mu.
type domain struct {
	conductor *conductor
	name      string
	policy    config.Domain
	agent     *agent
	view      *agentDomain
	seg       *shm.Segment
	bell      *shm.Bell
	making    sync.Mutex // one lane is made at a time

	workers  map[int]*worker
	lastID   int
	lastLane int
	methods  map[methodKey]*method
	outs     map[laneKey]*outgoing
	ins      map[laneKey]*incoming
	// segs are the segments of all lanes by lane id, with what workers need to
	// know about them.
	lanes map[uint16]*laneInfo
	// regions are its workers' and bulks the ways to operate on regions, by peer.
	regions regionTable
	bulks   map[string]*bulk
}

type methodKey struct{ service, method string }

// method is a method that workers of this node have registered.
type method struct {
	id      uint32
	answer  int
	workers map[*worker]bool
}

// laneKey names a lane of a domain; the peer of a local lane is this node.
type laneKey struct{ peer, class string }

// laneInfo is what a worker is told of a lane.
type laneInfo struct {
	attach.Lane
	seg *shm.Segment
	// serves: service workers need it, because requests come out of it.
	serves bool

	// mu keeps seg open while its descriptor is sent. gone: nobody is given
	// the lane any more.
	mu   sync.RWMutex
	gone bool
}

// withhold keeps the lane from being given to anybody from now on.
func (l *laneInfo) withhold() {
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
}

func (c *conductor) addDomain(p config.Domain, a *agent) error {
	seg, err := shm.Create(shm.CreateOptions{Name: "rdmad-domain-" + p.Name, Kind: shm.KindDomain, Size: slots.DomainSegmentSize})
	if err != nil {
		return fmt.Errorf("domain %s: %w", p.Name, err)
	}
	bell, err := shm.NewBell()
	if err != nil {
		_ = seg.Close()
		return fmt.Errorf("domain %s: %w", p.Name, err)
	}
	d := &domain{
		conductor: c, name: p.Name, policy: p, agent: a, seg: seg, bell: bell,
		view:    newAgentDomain(a, slots.NewBells(seg.Bytes())),
		workers: make(map[int]*worker), methods: make(map[methodKey]*method),
		outs: make(map[laneKey]*outgoing), ins: make(map[laneKey]*incoming),
		lanes: make(map[uint16]*laneInfo), bulks: make(map[string]*bulk),
	}
	d.view.methodBits = bits.Len(uint(c.cfg.Limits.Services))
	c.domains = append(c.domains, d)
	if err := a.watch(bell); err != nil {
		return fmt.Errorf("domain %s: %w", p.Name, err)
	}
	a.commands.call(func() { a.domains = append(a.domains, d.view) })
	return nil
}

// admit returns the domain for a process with the given credentials: the first
// that lists its user, else the first that lists its group.
func (c *conductor) admit(uid, gid uint32) *domain {
	for _, d := range c.domains {
		if slices.Contains(d.policy.UIDs, uid) {
			return d
		}
	}
	for _, d := range c.domains {
		if slices.Contains(d.policy.GIDs, gid) {
			return d
		}
	}
	return nil
}

func (c *conductor) domainNamed(name string) *domain {
	for _, d := range c.domains {
		if d.name == name {
			return d
		}
	}
	return nil
}

// newLane makes the segment of a lane of the given class and an id for it.
func (d *domain) newLane(peer string, class config.Class, serves bool) (*laneInfo, *slots.Ring, error) {
	g := geometryOf(class)
	seg, err := shm.Create(shm.CreateOptions{
		Name: "rdmad-lane-" + class.Name, Kind: shm.KindLane, Size: g.SegmentSize(),
		Hugepages: d.conductor.cfg.Memory.Hugepages,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("lane to %s, class %s: %w", peer, class.Name, err)
	}
	ring, err := slots.NewRing(seg.Bytes(), g)
	if err != nil {
		_ = seg.Close()
		return nil, nil, err
	}
	d.conductor.mu.Lock()
	defer d.conductor.mu.Unlock()
	for range slots.MaxLanes {
		d.lastLane = (d.lastLane + 1) % slots.MaxLanes
		id := uint16(d.lastLane)
		if d.lanes[id] != nil {
			continue
		}
		l := &laneInfo{Lane: attach.Lane{ID: id, Class: class.Name, Peer: peer, Geometry: g}, seg: seg, serves: serves}
		d.lanes[id] = l
		return l, ring, nil
	}
	_ = seg.Close()
	return nil, nil, fmt.Errorf("%w: %d lanes in domain %s", attach.ErrLimit, slots.MaxLanes, d.name)
}

// dropLane forgets a lane that is withheld and that no worker will use again.
func (d *domain) dropLane(l *laneInfo) {
	d.conductor.mu.Lock()
	delete(d.lanes, l.ID)
	d.conductor.mu.Unlock()
	_ = l.seg.Close()
}

func geometryOf(c config.Class) slots.Geometry {
	return slots.Geometry{SlotSize: c.SlotSize, Slots: c.Slots, MaxRun: c.MaxRun}
}

// announce gives a lane to every service worker of the domain.
func (d *domain) announce(l *laneInfo) {
	d.conductor.mu.Lock()
	var services []*worker
	for _, w := range d.workers {
		if w.role == attach.RoleService {
			services = append(services, w)
		}
	}
	d.conductor.mu.Unlock()
	for _, w := range services {
		d.conductor.spawn(func() { w.give(l) })
	}
}

// closeLanes takes all lanes down, when the core stops.
func (d *domain) closeLanes() {
	d.agent.commands.call(func() {
		for _, p := range d.view.peers {
			p.down(d.view)
		}
		for _, l := range d.view.outLanes {
			if l.local == nil {
				l.down("the daemon is stopping")
			}
		}
		for _, l := range d.view.inLanes {
			if l.local == nil {
				l.down()
			}
		}
	})
}

// close unmaps the domain's segments, after its agent has stopped.
func (d *domain) close() {
	for _, l := range d.lanes {
		_ = l.seg.Close()
	}
	for _, b := range d.bulks {
		b.unregister()
	}
	for _, r := range d.regions.list {
		if r != nil {
			_ = r.seg.Close()
		}
	}
	_ = d.seg.Close()
	_ = d.bell.Close()
}
