package slotmodel

import "github.com/rdmad/rdmad/slots"

// Slot states as small numbers.
const (
	free   = uint8(slots.Free)
	claim  = uint8(slots.Claim)
	follow = uint8(slots.Follow)
	pub    = uint8(slots.Pub)
	taken  = uint8(slots.Taken)
	ans    = uint8(slots.Ans)
	read   = uint8(slots.Read)

	recv   = uint8(slots.Recv)
	picked = uint8(slots.Picked)
	done   = uint8(slots.Done)
)

// clientSteps are the steps of client process x.
func (m *model) clientSteps(s *state, x int) {
	c := s.client[x]
	switch c.life {
	case living, hungUp:
	case buried:
		m.heirSteps(s, x)
		return
	default:
		return
	}
	run, message := m.current(s, x)
	w := s.words[c.slot]
	mine := w.owner == uint8(x+1) && w.ticket == c.ticket && w.run == run
	switch c.does {
	case idle, stores, claims:
		m.claimSteps(s, x, run)
	case abandons, frees:
		m.freeSteps(s, x)
	case publishes, looks:
		m.publishSteps(s, x, run, message, mine)
	case awaits:
		m.awaitSteps(s, x, run, message, mine)
	case reads: // only without acquire-by-swap
		n := m.step(s, "reads the answer: client", x, int(c.slot))
		n.reads(x, run, message)
		m.add(n)
	case revokes: // only without revoke-by-swap
		n := m.step(s, "stores CLAIM over what it has published: client", x, int(c.slot))
		n.revoked(x, run)
		m.add(n)
	}
}

// heirSteps: the id of a buried client goes to another process, which has the rest to send: domain.freeID, and
// Domain.UnsettledIDs.
func (m *model) heirSteps(s *state, x int) {
	if int(s.client[x].done) < len(m.scripts[x]) && (!s.unsettled(uint8(x+1)) || m.without(idOnceSettled)) {
		n := m.step(s, "a new client attaches, id", x, -1)
		n.client[x].life = living
		m.add(n)
	}
}

// claimSteps are the steps of a client that claims a run of slots.
func (m *model) claimSteps(s *state, x int, run uint8) {
	c, me := s.client[x], uint8(x+1)
	switch c.does {
	case idle:
		if run == 0 || s.agent.open == 0 {
			return
		}
		// Claim: the cursor is a hint, so it may start anywhere.
		for i := uint8(0); i+run <= m.slots; i++ {
			if s.words[i].state != free {
				continue
			}
			n := m.step(s, "sees a free slot: client", x, int(i))
			n.client[x] = client{does: stores, life: c.life, done: c.done, slot: i, ticket: s.words[i].ticket + 1}
			if !m.without(claimBySwap) {
				n.what = "claims the first slot: client"
				n.claimed(x, run)
			}
			m.add(n)
		}
	case stores:
		n := m.step(s, "stores CLAIM: client", x, int(c.slot))
		n.claimed(x, run)
		m.add(n)
	case claims: // claimAt
		i := c.slot + c.off
		if s.words[i].state != free {
			n := m.step(s, "finds no free slot: client", x, int(i))
			n.client[x].does = abandons
			m.add(n)
			return
		}
		n := m.step(s, "claims the next slot: client", x, int(i))
		n.words[i] = word{follow, me, c.off, s.words[i].ticket + 1}
		if n.client[x].off++; n.client[x].off == run {
			n.client[x].does, n.client[x].off = publishes, 0
		}
		m.add(n)
	}
}

// freeSteps are the steps of a client that frees its slots, last one first: unclaim, Abort, Consume.
func (m *model) freeSteps(s *state, x int) {
	c, me := s.client[x], uint8(x+1)
	n := m.step(s, "frees: client", x, int(c.slot+c.off-1))
	n.client[x].off--
	i := c.slot + n.client[x].off
	if s.words[i].owner != me || s.words[i].state == taken {
		n.fail(stolen)
	}
	n.words[i] = word{ticket: s.words[i].ticket}
	if n.client[x].off == 0 {
		n.client[x] = client{life: c.life, done: c.done}
		if c.does == frees {
			n.client[x].done++
		}
	}
	m.add(n)
}

// publishSteps are the steps of a client that has claimed its slots, until it waits. mine: its first word is what it
// stored.
func (m *model) publishSteps(s *state, x int, run, message uint8, mine bool) {
	c, me, w := s.client[x], uint8(x+1), s.words[s.client[x].slot]
	switch c.does {
	case publishes: // the request is written, then Publish
		n := m.step(s, "writes and publishes its request: client", x, int(c.slot))
		for i := c.slot; i < c.slot+run; i++ {
			if s.onWire(i) {
				n.fail(reused)
			}
			if o := s.words[i].owner; o != me && o != 0 {
				n.fail(stolen)
			}
			n.bytes[i] = content{message: message, kind: request}
		}
		if !mine || w.state != claim {
			n.fail(stolen)
		}
		n.bytes[c.slot].ticket = c.ticket
		n.words[c.slot].state = pub
		n.client[x].does = looks
		m.add(n)
	case looks: // lane.publish
		n := m.step(s, "sees that the lane is open: client", x, int(c.slot))
		n.client[x].does = awaits
		if s.agent.open == 0 && !m.without(lookAfterPublish) {
			n.what = "sees that the lane is closed: client"
			if mine && w.state == pub {
				n.revoked(x, run)
			}
		}
		m.add(n)
	}
}

// awaitSteps are the steps of a client with a request under way.
func (m *model) awaitSteps(s *state, x int, run, message uint8, mine bool) {
	c, w := s.client[x], s.words[s.client[x].slot]
	if c.mail != 0 { // waiting.deliver
		n := m.step(s, "takes a spilled answer: client", x, int(c.slot))
		n.end(message, c.mail)
		if mine && w.state == ans {
			n.what = "takes a spilled answer that is in its slots still: client"
			n.words[c.slot].state = read
			n.client[x].does, n.client[x].off = frees, run
		} else {
			n.client[x] = client{life: c.life, done: c.done + 1}
		}
		m.add(n)
	}
	switch {
	case mine && w.state == ans && m.without(acquireBySwap):
		n := m.step(s, "sees its answer: client", x, int(c.slot))
		n.client[x].does = reads
		m.add(n)
	case mine && w.state == ans: // Acquire
		n := m.step(s, "acquires and reads the answer: client", x, int(c.slot))
		n.words[c.slot].state = read
		n.reads(x, run, message)
		m.add(n)
	case mine && w.state == pub: // Revoke
		n := m.step(s, "revokes: client", x, int(c.slot))
		n.chance = true
		if m.without(revokeBySwap) {
			n.what = "sees that its request is not taken: client"
			n.client[x].does = revokes
			m.add(n)
			return
		}
		n.revoked(x, run)
		if m.without(revokeForGood) && int(c.done)+1 < len(m.scripts[x]) && m.scripts[x][c.done+1] == int(run) {
			n.what = "revokes, to publish another request in the run: client"
			n.client[x] = client{does: publishes, life: c.life, done: c.done + 1, slot: c.slot, ticket: c.ticket}
		}
		m.add(n)
	}
}

// reads is Future.read: client x has the answer in its slots.
func (n *next) reads(x int, run, message uint8) {
	c := &n.client[x]
	b := n.bytes[c.slot]
	if b.message != message || b.ticket != c.ticket || b.kind == request {
		n.fail(mixedUp)
	}
	n.end(message, b.kind)
	c.does, c.off = frees, run
}

// claimed makes the slot that client x has chosen the first of its run.
func (n *next) claimed(x int, run uint8) {
	c := &n.client[x]
	n.words[c.slot] = word{claim, uint8(x + 1), run, c.ticket}
	c.does, c.off = claims, 1
	if run == 1 || n.model.without(allBeforePublish) {
		c.does, c.off = publishes, 0
	}
}

// revoked takes client x's request back, as not executed, and goes on to free it.
func (n *next) revoked(x int, run uint8) {
	c := &n.client[x]
	n.words[c.slot] = word{claim, uint8(x + 1), run, c.ticket}
	c.does, c.off = frees, run
	_, message := n.model.current(&n.state, x)
	n.end(message, notExecuted)
}

// end gives a message its outcome.
func (n *next) end(message, kind uint8) {
	f := &n.fate[message-1]
	switch {
	case f.outcome != noOutcome:
		n.fail(mixedUp)
	case kind == notExecuted && f.executed > 0:
		n.fail(falseNot)
	case kind == answer && f.executed != 1:
		n.fail(mixedUp)
	}
	f.outcome = kind
}

// current returns the run and the number of the message that client x is about; a
// run of 0 if it has sent all.
func (m *model) current(s *state, x int) (run, message uint8) {
	d := int(s.client[x].done)
	if d >= len(m.scripts[x]) {
		return 0, 0
	}
	for i := range x {
		message += uint8(len(m.scripts[i]))
	}
	return uint8(m.scripts[x][d]), message + uint8(d) + 1
}

// unsettled is Domain.UnsettledIDs: slots of the owner are on the wire still.
func (s *state) unsettled(owner uint8) bool {
	for i := range s.journal {
		if s.journal[i].taken != 0 && s.journal[i].owner == owner {
			return true
		}
	}
	return false
}
