package agent

import (
	"fmt"

	"github.com/rdmad/rdmad/slots"
)

func (p *simWorker) String() string {
	if p.service {
		return fmt.Sprintf("%s service %d", p.node.name, p.id)
	}
	return fmt.Sprintf("%s client %d", p.node.name, p.id)
}

// simRun is a handler that runs.
type simRun struct {
	call  *simCall
	lane  *simLane
	u     slots.Run
	hint  slots.Hint
	order orderOfHint
	// stage is what it has done: 0 started, 1 written its answer, 2 marked it done.
	stage int
}

// orderOfHint is what orderKey is in package server.
type orderOfHint struct {
	lane, number uint16
	method       uint32
}

const maxRunning = 6

// serviceAct does something that a process of the service does, or all there is to do.
func (n *simNode) serviceAct() {
	w := n.w
	list := n.those(func(p *simWorker) bool { return p.alive && p.service })
	if len(list) == 0 {
		return
	}
	if w.calm {
		for _, p := range list {
			for range 200 {
				p.take()
				if !p.begin() && !p.proceed() {
					break
				}
			}
		}
		return
	}
	p := list[w.n(len(list))]
	for range 1 + w.n(4) {
		switch w.n(3) {
		case 0:
			p.take()
			p.begin()
		case 1:
			p.begin()
		default:
			p.proceed()
		}
	}
}

// take takes hints.
func (p *simWorker) take() {
	for {
		h, ok := p.rings.Down.Pop()
		if !ok {
			return
		}
		p.node.w.log("%v: hint of lane %d slot %d", p, h.Lane(), h.Index())
		p.backlog = append(p.backlog, h)
	}
}

// begin starts a handler, if there is something for it. One of an order waits for the
// one before it to return.
func (p *simWorker) begin() bool {
	if len(p.running) >= maxRunning {
		return false
	}
	blocked := map[orderOfHint]bool{}
	for _, r := range p.running {
		if r.order.number != 0 {
			blocked[r.order] = true
		}
	}
	for k := 0; k < len(p.backlog); k++ {
		h := p.backlog[k]
		l := p.laneOf(h)
		if l == nil {
			p.backlog = append(p.backlog[:k], p.backlog[k+1:]...)
			k--
			continue
		}
		var o orderOfHint
		if h.Ordered() {
			var head slots.Header
			if head.Decode(l.ring.HeaderAt(h.Index())) && head.Order != 0 {
				o = orderOfHint{h.Lane(), head.Order, head.Method}
			}
			if blocked[o] {
				continue
			}
			blocked[o] = true
		}
		if p.node.w.chance(200) && o.number == 0 {
			continue
		}
		p.backlog = append(p.backlog[:k], p.backlog[k+1:]...)
		k--
		u, ok := l.ring.PickHinted(h, p.id)
		if !ok {
			p.node.w.log("%v: hint of lane %d slot %d is of no use: %v", p, h.Lane(), h.Index(), l.ring.AnswerWord(h.Index()))
			if o.number != 0 {
				blocked[o] = false
			}
			continue
		}
		r := &simRun{lane: l, u: u, hint: h, order: o}
		r.call = l.started(p, u)
		p.running = append(p.running, r)
		return true
	}
	return false
}

func (p *simWorker) laneOf(h slots.Hint) *simLane {
	for l := range p.mapped {
		if l.id == h.Lane() && h.Index() < simGeometry.Slots {
			return l
		}
	}
	return nil
}

// proceed lets a handler go on a step.
func (p *simWorker) proceed() bool {
	w := p.node.w
	if len(p.running) == 0 {
		return false
	}
	k := w.n(len(p.running))
	r := p.running[k]
	switch r.stage {
	case 0:
		r.call.answerIn(r.lane.ring, r.u)
	case 1:
		if !r.lane.ring.Finish(r.u, p.id) {
			w.fail("%v: not finished by %v: %v", r.call, p, r.lane.ring.AnswerWord(r.u.Index))
		}
		w.log("%v done by %v", r.call, p)
		r.call.returned = true
	case 2:
		p.rings.Up.Push(r.hint)
		slots.NewBells(p.node.bells).MarkWorker(p.id)
		p.running = append(p.running[:k], p.running[k+1:]...)
	}
	r.stage++
	return true
}

// workersAct lets processes come, and the core notice those that have gone.
func (n *simNode) workersAct() {
	w := n.w
	if n.core == nil || n.paused > 0 {
		return
	}
	for _, p := range append([]*simWorker(nil), n.workers...) {
		if w.calm && !p.attached && len(p.running) == 0 {
			p.die() // nothing of an order goes on while it may live
		}
		if n.core == nil || !p.attached && !p.alive && !w.calm && w.n(2) == 0 {
			continue
		}
		switch {
		case p.attached:
			if p.service {
				n.giveLanes(p)
			}
		case !p.detached:
			p.detached = true
			w.log("%s: detaches %v", n.name, p)
			n.mutateDetach(p)
			n.do("detach", func() { n.core.d.Detach(p.view) })
		case !p.alive || w.mutant == mutBuriedAlive:
			w.log("%s: buries %v", n.name, p)
			n.bury(p)
		}
	}
	n.dropLanes()
	if n.core == nil {
		return
	}
	count := func(service bool) int {
		return len(n.those(func(p *simWorker) bool { return p.alive && p.attached && p.service == service }))
	}
	if count(true) == 0 && (w.calm || w.chance(500)) || count(true) < 2 && w.chance(100) {
		n.attach(true)
	}
	if !w.calm && n.core != nil && count(false) < 3 {
		n.attach(false)
	}
}

// bury follows conductor.detach after the process is dead.
func (n *simNode) bury(p *simWorker) {
	var told []Absence
	if !n.do("bury", func() {
		n.core.d.Bury(p.view)
		told, _ = n.core.d.Mourn(p.view, 0) // handlers go on, whatever they are told
	}) {
		return
	}
	for _, l := range n.lanes {
		if l.out != nil && l.in != nil {
			l.forsaken(p.id)
		}
	}
	n.tellGone(told)
	for k, have := range n.workers {
		if have == p {
			n.workers = append(n.workers[:k], n.workers[k+1:]...)
			break
		}
	}
}

// populate lets the first processes come.
func (n *simNode) populate() {
	for k := range 4 {
		if n.core != nil {
			n.attach(k < 1+n.w.n(2))
		}
	}
}

// attach lets a process come. Its id follows domain.freeID.
func (n *simNode) attach(service bool) {
	d := n.core.d
	for range slots.MaxOwner {
		n.lastID = n.lastID%12 + 1
		if d.Workers[n.lastID] == nil && !d.unsettled(n.lastID) {
			break
		}
	}
	if d.Workers[n.lastID] != nil || d.unsettled(n.lastID) {
		return
	}
	p := &simWorker{
		node: n, id: n.lastID, service: service, mem: n.w.arena.alloc(slots.WorkerSegmentSize), alive: true, attached: true,
		chains: map[simOrder]*simCall{}, mapped: map[*simLane]bool{},
	}
	p.rings = slots.NewWorkerRings(p.mem)
	p.view = &Worker{ID: p.id, Stale: true, Rings: slots.NewWorkerRings(p.mem)} // the simulation does not note which lanes it has known
	n.workers = append(n.workers, p)
	n.w.log("%v attaches", p)
	n.do("attach", func() {
		d.AddWorker(p.view)
		if service {
			d.Register(simMethod, p.view)
		}
	})
}

// giveLanes hands a process of the service the lanes that it has not got.
func (n *simNode) giveLanes(p *simWorker) {
	for _, l := range n.lanes {
		if l.toPeer || p.mapped[l] || n.core == nil || n.w.chance(300) {
			continue
		}
		p.mapped[l] = true
		n.do("mapped", func() { n.core.d.Maps(p.view, l.id) })
	}
}

// dropLanes follows domain.dropIncoming.
func (n *simNode) dropLanes() {
	for _, l := range append([]*simLane(nil), n.lanes...) {
		if n.core == nil || !l.dropping || l.in.Busy > 0 {
			continue
		}
		n.w.count("mirror: dropped")
		n.abandon(l)
		n.do("drop", func() { n.core.d.RemoveIn(l.in) })
		for k, have := range n.lanes {
			if have == l {
				n.lanes = append(n.lanes[:k], n.lanes[k+1:]...)
				break
			}
		}
		for _, p := range n.workers {
			delete(p.mapped, l)
			p.view.Mapped[l.id/64] &^= 1 << (l.id % 64)
		}
	}
}

// killWorker ends some process, or its connection first.
func (n *simNode) killWorker() {
	if len(n.workers) == 0 {
		return
	}
	p := n.workers[n.w.n(len(n.workers))]
	switch {
	case !p.alive:
	case p.attached && p.service && n.w.chance(300):
		n.w.count("service: loses its connection and lives on")
		p.attached = false
		n.serviceChanged()
	default:
		n.w.count("worker: killed")
		p.die()
	}
}

// serviceChanged notes when nobody serves the method any more.
func (n *simNode) serviceChanged() {
	if !n.served() {
		n.unserved++
	}
}

func (n *simNode) served() bool {
	return len(n.those(func(p *simWorker) bool { return p.service && p.alive && p.attached })) > 0
}

// gaps counts the times at which nobody has served the method: as long as it stays the
// same, no request may be refused for it. It is -1 in such a time.
func (n *simNode) gaps() int {
	if !n.served() {
		return -1
	}
	return n.unserved
}
