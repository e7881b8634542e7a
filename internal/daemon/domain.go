package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// domain is a trust domain: the workers that share rings, with those rings. The
// maps are guarded by conductor.mu.
type domain struct {
	conductor *conductor
	name      string
	policy    atomic.Pointer[config.Domain] // who is admitted; a reload replaces it
	agent     *agent.Agent
	view      *agent.Domain
	// tracerTimer: a look at whether the tracer is still wanted is to come.
	tracerTimer atomic.Bool
	seg         *shm.Segment
	bell        *shm.Bell
	bells       *slots.Bells // the agent's, of which any goroutine may set marks
	making      sync.Mutex   // one lane is made at a time

	workers map[int]*worker
	// leaving counts, by attach id, the messages without an answer that say that it is
	// nobody's any more.
	leaving  map[int]int
	lastID   int
	lastLane int
	methods  map[methodKey]*method
	// nextMethod is the number of the next method that is new.
	nextMethod int
	outs       map[laneKey]*outgoing
	ins        map[laneKey]*incoming
	// former are lanes to peers whose place another one has, because the class has changed since: they go when nobody has them.
	former []*outgoing
	// lanes are all lanes by their ids, with what workers need to know about them.
	lanes map[uint16]*laneInfo
	// regions are its workers' and bulks the ways to operate on regions, by peer.
	regions regionTable
	bulks   map[string]*bulk

	// retired: other memory has taken the place of this one. It is set with making and
	// conductor.mu held. alive ends with it, or with the core.
	retired bool
	alive   context.Context
	end     context.CancelFunc
	// using keeps the memory of lanes mapped while others than the agent use it.
	using sync.RWMutex
	// cut: a retired domain's lanes are closed. holders are the workers that were
	// disconnected before it was retired, and whose processes are not known to be dead. Both are guarded by conductor.mu.
	cut     bool
	holders int
	// generation counts the memories of the domain. stuck: it was said that there will be
	// no more of them.
	generation int
	stuck      bool
}

type methodKey struct{ service, method string }

// method is a method that workers of this node have registered.
type method struct {
	id      uint32
	answer  int
	workers map[*worker]bool
}

// carryMinor is the minor version of the ABI from which on programs know slots.FlagCarry.
const carryMinor = 2

// carries reports whether all that serve the method know slots.FlagCarry; mu is held.
func (m *method) carries() bool {
	for w := range m.workers {
		if shm.MinorOf(w.abi) < carryMinor {
			return false
		}
	}
	return true
}

// laneKey names a lane of a domain; the peer of a local lane is this node.
type laneKey struct {
	peer, class string
	number      int // of the lanes of the class, from 0 on
}

// laneInfo is what a worker is told of a lane.
type laneInfo struct {
	attach.Lane
	seg *shm.Segment
	// vault is the daemon's own memory of the lane's requests.
	vault *shm.Segment
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

// addDomain makes a domain, or one again of which something is left.
func (c *conductor) addDomain(p config.Domain, a *agent.Agent, left *domainLeft) error {
	d, err := c.newDomain(p, a, left)
	if err != nil {
		return err
	}
	list := append(slices.Clone(c.allDomains()), d)
	c.domains.Store(&list)
	a.Commands.Call(func() { a.Domains = append(a.Domains, d.view) })
	if left == nil {
		c.keep(domainKey(d.name), d.meta(), d.seg.FD(), d.bell.FD())
		return nil
	}
	faultpoint.Here("adopt.domain")
	a.Commands.Call(d.view.Inherit)
	d.adopt(left)
	return nil
}

// allDomains returns the domains that are in use. The list is not to be changed.
func (c *conductor) allDomains() []*domain {
	if l := c.domains.Load(); l != nil {
		return *l
	}
	return nil
}

// newDomain makes a domain, whose agent watches its bell and does not know it yet.
func (c *conductor) newDomain(p config.Domain, a *agent.Agent, left *domainLeft) (*domain, error) {
	seg, bell, err := domainMemory(p.Name, left)
	if err != nil {
		return nil, fmt.Errorf("domain %s: %w", p.Name, err)
	}
	bells := slots.NewBells(seg.Bytes())
	d := &domain{
		conductor: c, name: p.Name, agent: a, seg: seg, bell: bell, bells: bells,
		view:    agent.NewDomain(a, bells),
		workers: make(map[int]*worker), leaving: make(map[int]int), methods: make(map[methodKey]*method),
		outs: make(map[laneKey]*outgoing), ins: make(map[laneKey]*incoming),
		lanes: make(map[uint16]*laneInfo), bulks: make(map[string]*bulk),
	}
	d.view.Expecting = c.tenancy.expecting.Load()
	d.policy.Store(&p)
	d.alive, d.end = context.WithCancel(c.ctx)
	d.view.Strikes = agent.StrikeRules{
		Worker: c.live().Limits.Strikes, Domain: c.live().Limits.DomainStrikes,
		OnWorker: func(w *agent.Worker, n int, last agent.Misdeed) { c.spawn(func() { c.strikeOut(d, w, n, last) }) },
		OnDomain: func(w *agent.Worker, n int) { c.spawn(func() { c.damaged(d, w, n) }) },
	}
	d.view.WorkerBytes = c.live().Limits.WorkerBytes
	d.view.Looks.After = c.live().Limits.SpillAfter
	d.view.Looks.Later = func(after time.Duration) {
		time.AfterFunc(after, func() { a.Commands.Do(d.view.OnLook) })
	}
	d.view.MethodBits = bits.Len(uint(c.cfg.Limits.Services))
	if err := a.Watch(bell); err != nil {
		d.end()
		return nil, errors.Join(fmt.Errorf("domain %s: %w", p.Name, err), seg.Close(), bell.Close())
	}
	return d, nil
}

// domainMemory makes a domain's segment and its bell, or takes what is left of them.
func domainMemory(name string, left *domainLeft) (seg *shm.Segment, bell *shm.Bell, err error) {
	if left != nil {
		if seg, err = shm.Adopt(take(left.item, 0), slots.DomainSegmentSize); err != nil {
			return nil, nil, err
		}
		return seg, shm.OpenBell(take(left.item, 1)), nil
	}
	if seg, err = shm.Create(shm.CreateOptions{Name: "rdmad-domain-" + name, Kind: shm.KindDomain, Size: slots.DomainSegmentSize}); err != nil {
		return nil, nil, err
	}
	if bell, err = shm.NewBell(); err != nil {
		return nil, nil, errors.Join(err, seg.Close())
	}
	return seg, bell, nil
}

func (c *conductor) domainNamed(name string) *domain {
	for _, d := range c.allDomains() {
		if d.name == name {
			return d
		}
	}
	return nil
}

// newLane makes the segments of lane number n of the given class and an id for it.
func (d *domain) newLane(peer string, class config.Class, n int, serves bool) (_ *laneInfo, _ *slots.Ring, _ *vault.Vault, err error) {
	g := geometryOf(class)
	fail := func(err error) (*laneInfo, *slots.Ring, *vault.Vault, error) {
		return nil, nil, nil, fmt.Errorf("lane to %s, class %s: %w", peer, class.Name, err)
	}
	seg, err := shm.Create(shm.CreateOptions{
		Name: "rdmad-lane-" + class.Name, Kind: shm.KindLane, Size: g.SegmentSize(),
		Hugepages: d.conductor.cfg.Memory.Hugepages, Available: leaving(config.LeftByLanes),
	})
	if err != nil {
		return fail(withoutMemory(err))
	}
	kept, err := shm.Create(shm.CreateOptions{Name: "rdmad-vault-" + class.Name, Kind: shm.KindVault, Size: vault.Size(g.Slots), Available: leaving(config.LeftByLanes)})
	if err != nil {
		_ = seg.Close()
		return fail(withoutMemory(err))
	}
	l := &laneInfo{seg: seg, vault: kept, serves: serves, Lane: attach.Lane{
		Class: class.Name, Number: n, Peer: peer, Geometry: g,
		Quota: quotaOf(g.Slots, d.conductor.live().Limits.WorkerSlots),
	}}
	ring, v, err := l.views()
	if err == nil {
		l.ID, err = d.laneID()
	}
	if err != nil {
		l.close()
		return fail(err)
	}
	d.conductor.mu.Lock()
	d.lanes[l.ID] = l
	d.keepCounts()
	d.keepLane(l)
	d.conductor.mu.Unlock()
	return l, ring, v, nil
}

// views returns views of the lane's segments.
func (l *laneInfo) views() (*slots.Ring, *vault.Vault, error) {
	ring, err := slots.NewRing(l.seg.Bytes(), l.Geometry)
	if err != nil {
		return nil, nil, err
	}
	v, err := vault.New(l.vault.Bytes(), l.Geometry.Slots)
	return ring, v, err
}

func (l *laneInfo) close() {
	_ = l.seg.Close()
	_ = l.vault.Close()
}

// laneID returns an id that no lane of the domain has. d.making is held.
func (d *domain) laneID() (uint16, error) {
	d.conductor.mu.Lock()
	defer d.conductor.mu.Unlock()
	if d.retired {
		return 0, agent.ErrRetired
	}
	for range slots.MaxLanes {
		d.lastLane = (d.lastLane + 1) % slots.MaxLanes
		if id := uint16(d.lastLane); d.lanes[id] == nil {
			return id, nil
		}
	}
	return 0, fmt.Errorf("%w: %d lanes in domain %s", attach.ErrLimit, slots.MaxLanes, d.name)
}

// dropLane forgets a lane that is withheld and that no worker will use again.
func (d *domain) dropLane(l *laneInfo) {
	d.conductor.mu.Lock()
	delete(d.lanes, l.ID)
	d.keepNoMore(keyOf(kindLane, d, int(l.ID)))
	d.conductor.mu.Unlock()
	l.close()
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
	d.agent.Commands.Call(func() {
		for _, p := range d.view.Peers {
			p.Suspend(d.view)
			p.Forget()
		}
		for _, l := range d.view.OutLanes {
			if l.Local == nil {
				l.Down("the daemon is stopping")
			}
		}
		for _, l := range d.view.InLanes {
			if l.Local == nil {
				l.Down()
			}
		}
	})
}

// close unmaps the domain's segments, after its agent has stopped or has forgotten it.
func (d *domain) close() {
	d.end()
	d.conductor.mu.Lock()
	lanes, bulks := slices.Collect(maps.Values(d.lanes)), slices.Collect(maps.Values(d.bulks))
	d.conductor.mu.Unlock()
	for _, l := range lanes {
		l.close()
	}
	for _, b := range bulks {
		b.endAccept()
		b.mu.Lock()
		b.unregister()
		b.mu.Unlock()
	}
	for _, r := range d.regions.list {
		if r != nil {
			_ = r.seg.Close()
		}
	}
	_ = d.seg.Close()
	_ = d.bell.Close()
}

// quotaOf is the most slots of n that a worker may hold, as limits.worker_slots says
// in percent; 0 for no limit.
func quotaOf(n, percent int) int {
	if percent >= 100 {
		return 0
	}
	return max(n*percent/100, 1)
}
