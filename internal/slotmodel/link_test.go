package slotmodel

// linkSteps are the steps of the connection: its opening, its loss, and a fabric that
// repeats a write.
func (m *model) linkSteps(s *state) {
	l := &s.link
	if l.up == 0 && s.agent.does == rests && m.wanted(s) {
		n := m.step(s, "the lane is opened again", -1, -1)
		n.open()
		m.add(n)
	}
	if l.losses > 0 && l.lost == 0 && l.up != 0 && l.far != 0 {
		n := m.step(s, "THE CONNECTION IS LOST", -1, -1)
		n.link.losses--
		n.link.lost = 1
		n.chance = true
		m.add(n)
	}
	if l.repeats > 0 && l.up != 0 && l.far != 0 {
		for _, g := range l.requests[:l.delivered] {
			n := m.step(s, "THE FABRIC REPEATS A WRITE, of the group", -1, int(g))
			n.link.repeats--
			n.agent.repeated = 1
			n.chance = true
			n.deliver(g, true)
			m.add(n)
		}
	}
}

// wanted reports whether a client asks for the lane: outgoing.open.
func (m *model) wanted(s *state) bool {
	for x := range s.client {
		if c := &s.client[x]; c.life == living && c.does == idle && int(c.done) < len(m.scripts[x]) {
			return true
		}
	}
	return false
}

// open is outgoing.open and domain.findOrMakeMirror: the same ring, and the same mirror
// unless handlers run in it.
func (n *next) open() {
	n.farDown()
	busy := false
	for i := range n.records {
		busy = busy || n.records[i].active != 0
		n.records[i].seen = 0 // InLane.Up
	}
	if busy && !n.model.without(mirrorAtRest) {
		n.records, n.answers, n.mirror = [ringSlots]record{}, [ringSlots]word{}, [ringSlots]content{}
		for x := range n.service {
			if p := &n.service[x]; p.does != waits {
				p.old = 1
				p.slot, p.ticket = 0, 0
			}
		}
	} else if busy {
		n.records = [ringSlots]record{}
	}
	l := &n.link
	l.requests, l.answers, l.delivered = [maxGroups]uint8{}, [maxGroups]uint8{}, 0
	n.flight = [ringSlots]content{}
	l.up, l.far, l.lost = 1, 1, 0
	n.agent.open = 1
}

// faultSteps are the ends of processes: at once, or first of their connections.
func (m *model) faultSteps(s *state) {
	for x := range s.client {
		switch s.client[x].life {
		case living:
			if s.link.kills > 0 && int(s.client[x].done) < len(m.scripts[x]) {
				n := m.step(s, "KILLED: client", x, -1)
				n.link.kills--
				n.client[x].life = killed
				n.chance = true
				m.add(n)
				n = m.step(s, "LOSES ITS DAEMON, AND LIVES: client", x, -1)
				n.link.kills--
				n.client[x].life = hungUp
				n.chance = true
				m.add(n)
			}
		case hungUp:
			n := m.step(s, "ends: client", x, -1)
			n.client[x].life = detached
			m.add(n)
		}
	}
	for x := range s.service {
		switch s.service[x].life {
		case living:
			if s.link.kills > 0 {
				n := m.step(s, "KILLED: service", x, -1)
				n.link.kills--
				n.service[x].life = killed
				n.chance = true
				m.add(n)
				n = m.step(s, "LOSES ITS DAEMON, AND LIVES: service", x, -1)
				n.link.kills--
				n.detachService(x, hungUp)
				n.chance = true
				m.add(n)
			}
		case hungUp:
			n := m.step(s, "ends: service", x, -1)
			n.service[x].life = detached
			m.add(n)
		}
	}
}
