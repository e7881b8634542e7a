package agent

import (
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// simWorker is a process that is attached, or was: a client or one of the service.
type simWorker struct {
	node  *simNode
	id    int
	mem   []byte
	rings *slots.WorkerRings
	view  *Worker // of the present core
	// alive: the process is. attached: its connection is. detached: the core has
	// noticed that it is not.
	alive, attached, detached bool

	// Of a client: its requests, and the last one of each order.
	calls  []*simCall
	chains map[simOrder]*simCall

	// Of the service.
	service bool
	mapped  map[*simLane]bool
	// backlog are hints that it has taken and not looked at.
	backlog []slots.Hint
	running []*simRun
}

// simOrder is what requests of one order have in common.
type simOrder struct {
	client *simWorker
	lane   *simLane
	number uint16
}

const maxOpen = 24 // requests of a client that have no outcome

// Kinds of deadlines: of the requester's clock, and what the lanes between nodes add to
// it, so that a request is late at the sender, at the receiver, or never.
const (
	farDeadline  = 1 << 62
	lateThere    = 1<<61 + 1
	lateHere     = 1
	clockBetween = -(1 << 61)
)

// clientAct does something that a client does, or all that is to be done.
func (n *simNode) clientAct() {
	clients := n.those(func(p *simWorker) bool { return p.alive && p.attached && !p.service })
	if len(clients) == 0 {
		return
	}
	w := n.w
	if w.calm {
		for _, p := range clients {
			p.finishClaims()
			p.look()
			for _, c := range append([]*simCall(nil), p.calls...) {
				if c.ready {
					p.consume(c)
				}
			}
		}
		return
	}
	p := clients[w.n(len(clients))]
	switch k := w.n(12); {
	case k < 5:
		p.request()
	case k < 7:
		p.look()
	case k < 9:
		for _, c := range p.calls {
			if c.ready {
				p.consume(c)
				break
			}
		}
	case k < 10:
		p.finishClaims()
	case len(p.calls) > 0:
		if c := p.calls[w.n(len(p.calls))]; w.n(2) == 0 {
			p.revoke(c)
		} else if c.stage == published && c.order == 0 && !c.oneway {
			p.cancel(c)
		}
	}
}

// those returns the workers that match.
func (n *simNode) those(match func(*simWorker) bool) (list []*simWorker) {
	for _, p := range n.workers {
		if match(p) {
			list = append(list, p)
		}
	}
	return list
}

// request claims a run for a new request, and mostly publishes it.
func (p *simWorker) request() {
	w := p.node.w
	l := p.lane()
	if l == nil || len(p.calls) >= maxOpen {
		return
	}
	c := &simCall{id: len(w.calls) + 1, client: p, lane: l, method: simMethod, oneway: w.n(4) == 0, unserved: l.server().gaps()}
	c.length = w.n(200)
	if w.n(4) == 0 {
		c.length = w.n(1500)
	}
	c.length = max(c.length, 8)
	c.answer = w.n(200)
	switch w.n(12) {
	case 0:
		c.method = simNobodys
	case 1:
		c.deadline = []int64{lateHere, lateThere, farDeadline}[w.n(3)]
	case 2, 3, 4:
		c.order = uint16(1 + w.n(2))
	}
	p.claim(c, simGeometry.RunFor(max(c.length, c.answer)))
}

// lane chooses a lane that the client can use.
func (p *simWorker) lane() *simLane {
	var usable []*simLane
	for _, l := range p.node.lanes {
		if !l.fromPeer {
			usable = append(usable, l)
		}
	}
	if len(usable) == 0 {
		return nil
	}
	return usable[p.node.w.n(len(usable))]
}

// claim claims a run for c, writes the request, and publishes it, now or later.
func (p *simWorker) claim(c *simCall, run int) {
	w := p.node.w
	ring := c.lane.ring
	if cur := ring.Cursor(); cur > uint64(w.window+w.width) || w.n(8) == 0 {
		// Any value of the hint is legal: this makes slots be used again soon.
		shm.Uint64At(c.lane.mem, offCursor).Store(uint64(w.window + w.n(4)))
	}
	u, err := ring.Claim(p.id, run)
	if err != nil {
		w.count("claim: " + err.Error())
		return
	}
	c.run = u
	w.calls = append(w.calls, c)
	p.calls = append(p.calls, c)
	c.write()
	w.log("%v claimed for %v", c, p)
	if w.n(5) > 0 {
		p.publish(c)
	}
}

func (p *simWorker) finishClaims() {
	for _, c := range append([]*simCall(nil), p.calls...) {
		if c.stage == claimed {
			p.publish(c)
			if !p.node.w.calm {
				return
			}
		}
	}
}

// publish hands the request to the daemon, like client lane.publish.
func (p *simWorker) publish(c *simCall) {
	w := p.node.w
	c.chain()
	if !c.lane.ring.Publish(c.run, p.id) {
		w.fail("%v: not published: %v", c, c.lane.ring.Word(c.run.Index))
	}
	c.stage, c.losses = published, c.lane.losses
	w.log("%v published", c)
	// SYNC POINT (lane closed) of the client: a look after it has published.
	if c.lane.ring.State() == slots.LaneClosed && c.lane.ring.Revoke(c.run, p.id) {
		p.drop(c)
		return
	}
	if !w.chance(100) || c.order != 0 {
		slots.NewBells(p.node.bells).MarkLane(c.lane.id)
	} else {
		w.count("client: does not ring")
	}
}

// drop gives up a claim.
func (p *simWorker) drop(c *simCall) {
	c.lane.ring.Abort(c.run)
	c.lane.ring.Freed(c.run.Len)
	c.stage = revoked
	p.forget(c)
	if c.order != 0 {
		delete(p.chains, c.key())
	}
}

func (p *simWorker) forget(c *simCall) {
	for k, have := range p.calls {
		if have == c {
			p.calls = append(p.calls[:k], p.calls[k+1:]...)
			return
		}
	}
}

// revoke takes a request back, if the daemon has not got it. Ordered ones stay.
func (p *simWorker) revoke(c *simCall) {
	if c.order == 0 && c.stage == published && !c.ready && c.lane.ring.Revoke(c.run, p.id) {
		p.node.w.log("%v revoked", c)
		p.node.w.count("client: revoked")
		p.drop(c)
	}
}

// cancel sends the message that drops a request.
func (p *simWorker) cancel(of *simCall) {
	c := &simCall{id: len(p.node.w.calls) + 1, client: p, lane: of.lane, oneway: true, cancels: of}
	p.claim(c, 1)
	if c.run.Len > 0 {
		of.cancelled = true
	}
}

// look takes hints, and looks at what they name.
func (p *simWorker) look() {
	defer p.sleep()
	for _, h := range p.backlog {
		p.hinted(h)
	}
	p.backlog = p.backlog[:0]
	for {
		h, ok := p.rings.Down.Pop()
		if !ok {
			break
		}
		p.hinted(h)
	}
	if p.rings.TakeOverflow() {
		for _, c := range p.calls {
			c.ready = c.ready || c.stage == published && c.lane.ring.Answered(c.run, p.id)
		}
	}
	// Nobody tells of the end of a one-way message: its slots are free.
	for _, c := range append([]*simCall(nil), p.calls...) {
		if c.oneway && c.stage == published {
			if word := c.lane.ring.Word(c.run.Index); word.Ticket() != c.run.Ticket || word.State() == slots.Free {
				c.stage = resolved
				p.forget(c)
			}
		}
	}
}

// sleep announces a sleep, or ends one: it costs the daemon a wake-up.
func (p *simWorker) sleep() {
	if p.rings.Down.CancelSleep(); p.node.w.n(3) == 0 {
		p.rings.Down.PrepareSleep()
	}
}

func (p *simWorker) hinted(h slots.Hint) {
	for _, c := range p.calls {
		if c.lane.id == h.Lane() && c.run.Index == h.Index() && h.TicketIs(c.run.Ticket) && c.stage == published {
			c.ready = c.ready || c.lane.ring.Answered(c.run, p.id)
		}
	}
}

// consume takes an answer out.
func (p *simWorker) consume(c *simCall) {
	c.judge()
	c.stage = resolved
	p.forget(c)
	c.lane.ring.Consume(c.run)
	c.lane.ring.Freed(c.run.Len)
}

// die ends a process. It may have been in the middle of anything.
func (p *simWorker) die() {
	if !p.alive {
		return
	}
	w := p.node.w
	w.log("%v dies", p)
	p.alive, p.attached = false, false
	for _, c := range p.calls {
		c.orphan = true
		// In the middle of giving a run back: the last slots of it are free.
		if c.ready && w.chance(500) {
			for j := c.run.Len - 1; j > w.n(c.run.Len); j-- {
				p.free(c.lane, c.run.Index+j)
			}
			w.count("client: dies while it frees")
		}
		w.count("client: dies with a request " + [...]string{"claimed", "published", "", ""}[c.stage])
	}
	p.calls = nil
	if l := p.lane(); !p.service && l != nil && w.chance(300) {
		// In the middle of a claim.
		i, k := (w.window+w.n(w.width))%(simGeometry.Slots-4), 2+w.n(3)
		for j := range 1 + w.n(k-1) {
			word := l.ring.Word(i + j)
			if word.State() != slots.Free {
				break
			}
			s, run := slots.Follow, j
			if j == 0 {
				s, run = slots.Claim, k
			}
			shm.Uint64At(l.mem, offWords+8*(i+j)).Store(uint64(slots.MakeWord(s, run, p.id, word.Ticket()+1)))
		}
		w.count("client: dies while it claims")
	}
	for _, r := range p.running {
		r.call.pickerDied = true
		w.count("service: dies in a handler, " + [...]string{"started", "answered", "done"}[r.stage])
	}
	p.running = nil
	p.node.serviceChanged()
}

// free frees one slot of a run that is the worker's.
func (p *simWorker) free(l *simLane, i int) {
	w := l.ring.Word(i)
	shm.Uint64At(l.mem, offWords+8*i).Store(uint64(slots.MakeWord(slots.Free, 0, 0, w.Ticket())))
}
