package agent

import (
	"fmt"
	"reflect"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// simNode is a node: a core that comes and goes, and what outlives it.
type simNode struct {
	w           *world
	name        string
	peer        *simNode
	incarnation int
	// What the supervisor keeps.
	bells   []byte
	workers []*simWorker
	lanes   []*simLane
	lastID  int
	lastNo  uint16
	// core is nil while there is none.
	core *simCore
	// session is the connection to the peer as this core knows it.
	session *simSession
	// known is the peer's incarnation as this core knows it, 0 for none.
	known int
	// unserved counts the times at which nobody served the method.
	unserved int
	paused   int
	// armed is where the core is to stop; nil for nowhere.
	armed *stopAt
}

// simCore is what dies with the process.
type simCore struct {
	a   *Agent
	d   *Domain
	dev *simDevice
	tag uint64
}

// simLane is the memory of a lane, with what the conductor knows of it. One that
// requests go out by has out, one that they come in by has in, a local one both.
type simLane struct {
	node       *simNode
	id         uint16
	number     int
	ring       *slots.Ring
	vault      *vault.Vault
	mem, store []byte
	// toPeer, fromPeer: one end of a lane between the nodes.
	toPeer, fromPeer bool
	out              *OutLane
	in               *InLane
	// conn is the present connection, or the one that is being made.
	conn *simConn
	// losses counts the times at which what was sent may have been given up, and
	// forgotten says that the other end has had reason to forget what it knew.
	losses    int
	forgotten bool
	// mirror is what the peer was told that it is called; dropping: another mirror has taken its place.
	mirror   uint64
	dropping bool
}

func (l *simLane) String() string {
	kind := "local"
	switch {
	case l.toPeer:
		kind = "out"
	case l.fromPeer:
		kind = "in"
	}
	return fmt.Sprintf("%s %s lane %d.%d", l.node.name, kind, l.id, l.number)
}

// create makes what a new incarnation begins with.
func (n *simNode) create() {
	n.bells = n.w.arena.alloc(slots.DomainSegmentSize)
	n.lanes, n.workers = nil, nil
	n.lastNo = 0
	if n.name == "A" || n.w.seed%3 == 0 {
		for k := range 1 + n.w.seed/8%2 {
			l := n.newLane(int(k))
			l.toPeer = true
			l.ring.SetState(slots.LaneClosed)
		}
	}
	if n.name == "A" && n.w.seed%2 == 0 {
		n.newLane(0)
	}
}

func (n *simNode) newLane(number int) *simLane {
	n.lastNo++
	l := &simLane{
		node: n, id: n.lastNo, number: number,
		mem: n.w.arena.alloc(simGeometry.SegmentSize()), store: n.w.arena.alloc(vault.Size(simGeometry.Slots)),
	}
	var err error
	if l.ring, err = slots.NewRing(l.mem, simGeometry); err != nil {
		panic(err)
	}
	if l.vault, err = vault.New(l.store, simGeometry.Slots); err != nil {
		panic(err)
	}
	shm.Uint64At(l.mem, offCursor).Store(uint64(n.w.window))
	n.lanes = append(n.lanes, l)
	return l
}

// start starts a core, which adopts what there is. False: it has died doing so.
func (n *simNode) start() bool {
	n.w.log("%s: a core starts", n.name)
	dev := n.w.net.open(n)
	a, err := New("sim", IdleStrategy{busy: true}, 1+n.w.n(16), []fabric.Device{dev}, zerolog.Nop())
	if err != nil {
		panic(err)
	}
	n.w.delays(a)
	d := NewDomain(a, slots.NewBells(n.bells))
	d.MethodBits = 8
	if n.w.seed/4%2 == 1 {
		d.mostQueued = 1 + int(n.w.seed/8%3) // looks at the queues take several cycles
	}
	a.Domains = append(a.Domains, d)
	n.core = &simCore{a: a, d: d, dev: dev}
	n.session, n.known = nil, 0
	return n.do("adopt", func() { n.adopt() })
}

// adopt takes everything over that the supervisor has kept.
func (n *simNode) adopt() {
	a, d := n.core.a, n.core.d
	for _, p := range n.workers {
		p.view = &Worker{ID: p.id, Stale: true, Rings: slots.ResumeWorkerRings(p.mem)}
		p.detached = false
		d.AddWorker(p.view)
		if p.service {
			for _, l := range n.lanes {
				if p.mapped[l] {
					p.view.Mapped[l.id/64] |= 1 << (l.id % 64)
				}
			}
			d.Register(simMethod, p.view)
		}
	}
	var waiting []Queued
	for _, l := range n.lanes {
		l.conn, l.out, l.in = nil, nil, nil
		if !l.fromPeer {
			l.out = NewOutLane(d, l.id, l.ring, l.vault, a.GroupMax)
			d.AddOut(l.out)
		}
		if !l.toPeer {
			l.in = NewInLane(d, l.id, l.ring, l.vault, a.GroupMax)
			l.mirror = l.vault.Mirror.Load()
			d.AddIn(l.in)
		}
		if l.out != nil && l.in != nil {
			l.out.Local, l.in.Local = l.in, l.out
		}
	}
	if n.w.mutant != "" {
		n.mutateMemory()
	}
	for _, l := range n.lanes {
		if l.in != nil {
			waiting = append(waiting, l.in.Adopt()...)
		}
	}
	for _, l := range n.lanes {
		if l.out != nil {
			l.out.Adopt()
		}
	}
	d.DispatchAdopted(waiting)
	for _, l := range n.lanes {
		if l.out != nil && l.in != nil {
			l.out.Rejoin()
		}
	}
	if n.w.mutant != mutNotTold {
		d.Resume()
	}
	n.w.count("core: adopted")
}

// stopAt is a page of memory, of whose kind name says, to which a core is to store
// nothing any more: it stops before the first store there, whatever it is doing. In a
// build with the tag "faultpoints" it may be a point instead, and the passage of it.
// With neither it stops after what it is doing.
type stopAt struct {
	name     string
	page     []byte
	point    string
	passages int
	pointWatch
	// left is how many things it may do until then.
	left int
}

// simStop is what a core panics with at its point.
type simStop struct{}

// arm makes the core stop soon.
func (n *simNode) arm() {
	n.armed = &stopAt{left: 1}
	switch k := n.w.n(6); {
	case k == 0:
	case len(corePoints) > 0 && k < 4:
		// A point is the process's: only one node at a time has one.
		if n.peer.armed == nil || n.peer.armed.point == "" {
			n.armed.point, n.armed.passages, n.armed.left = corePoints[n.w.n(len(corePoints))], 1+n.w.n(3), 100
		}
	case !raceEnabled:
		n.armed.name, n.armed.page = n.hotPage()
		n.armed.left = 100
	}
}

// do lets the core do something, in the middle of which it stops if it is armed. False:
// it is dead.
func (n *simNode) do(what string, f func()) bool {
	s := n.armed
	if s == nil || n.w.calm {
		f()
		return true
	}
	if where := n.runUntil(s, f); where != "" {
		n.armed = nil
		n.crash(what + ", " + where)
		return false
	}
	return true
}

// runUntil runs f until it stores something to the page, and says where it stopped, or
// "" if it did not.
func (n *simNode) runUntil(s *stopAt, f func()) (where string) {
	s.left--
	if s.page != nil {
		protect(s.page, unix.PROT_READ)
		defer protect(s.page, unix.PROT_READ|unix.PROT_WRITE)
	}
	s.watch()
	defer s.unwatch()
	defer func() {
		if r := recover(); r != nil {
			_, point := r.(simStop)
			fault, ok := r.(interface{ Addr() uintptr })
			switch {
			case point:
				where = "at " + s.point
			case ok && s.page != nil && fault.Addr()-reflect.ValueOf(s.page).Pointer() < pageSize:
				where = "before a store to the " + s.name
			default:
				panic(r)
			}
			n.w.count("crash: " + where)
		}
	}()
	f()
	if s.left > 0 {
		return ""
	}
	n.w.count("crash: after a step")
	return "at its end"
}

// hotPage chooses a page of what the core writes to.
func (n *simNode) hotPage() (string, []byte) {
	w := n.w
	if len(n.workers) > 0 && w.n(5) == 0 {
		p := n.workers[w.n(len(n.workers))]
		if w.n(2) == 0 {
			return "heads and tails of a worker's rings", pageOf(p.mem, shm.HeaderSize)
		}
		return "hints of a worker", pageOf(p.mem, 2*shm.HeaderSize)
	}
	if len(n.lanes) == 0 || w.n(20) == 0 {
		return "marks of the domain", pageOf(n.bells, shm.HeaderSize)
	}
	l := n.lanes[w.n(len(n.lanes))]
	i := (w.window + w.n(w.width)) % simGeometry.Slots
	const perSlot, lane = 32, shm.HeaderSize + 64
	records := lane + simGeometry.Slots*perSlot
	slotsAt := len(l.mem) - simGeometry.SlotBytes()
	switch w.n(6) {
	case 0:
		return "slots", pageOf(l.mem, slotsAt+i*simGeometry.SlotSize)
	case 1:
		return "words", pageOf(l.mem, offWords+8*i)
	case 2:
		return "answer words", pageOf(l.mem, offWords+8*(simGeometry.Slots+i))
	case 3:
		return "words of the lane", pageOf(l.mem, shm.HeaderSize)
	}
	if l.in != nil && (l.out == nil || w.n(2) == 0) {
		return "records", pageOf(l.store, records+perSlot*i)
	}
	return "journal", pageOf(l.store, lane+perSlot*i)
}

// crash ends the core.
func (n *simNode) crash(why string) {
	if n.core == nil {
		return
	}
	n.w.log("%s: the core dies: %s", n.name, why)
	n.w.count("crash of a core")
	_ = n.core.dev.Close()
	n.core.a.Release()
	if n.armed != nil {
		n.armed.left = 0
		n.armed.unwatch()
	}
	n.core, n.armed = nil, nil
	n.cut()
	n.session = nil
	for _, l := range n.lanes {
		n.abandon(l)
	}
}

// lose ends the node: the next incarnation knows nothing.
func (n *simNode) lose() {
	n.w.count("loss of a node")
	n.w.log("%s: the node is lost", n.name)
	n.crash("with its node")
	for _, p := range n.workers {
		p.die()
	}
	for _, l := range n.peer.lanes {
		if l.toPeer {
			l.forgotten = true
		}
	}
	for _, c := range n.w.calls {
		if c.lane.node == n {
			c.abandoned = true
		}
	}
	n.incarnation++
	n.unserved++
	n.create()
}

// cycle is a turn of the agent, or the start of a core.
func (n *simNode) cycle() {
	if n.w.mutant != "" && n.core != nil {
		n.mutateCycle()
	}
	switch {
	case n.paused > 0:
		n.paused--
	case n.core == nil:
		n.start()
	case n.w.calm || n.w.n(6) == 0:
		n.do("rescan", func() {
			n.core.a.rescan()
			n.core.a.cycle()
		})
	default:
		n.do("cycle", func() { n.core.a.cycle() })
	}
	if n.core != nil && n.core.d.midway {
		n.w.count("look at the queues: interrupted")
	}
	n.notice()
}
