package slotmodel

// agentSteps are the steps of the requesting agent. It is one thread: in the middle of
// a group nothing else of it happens.
func (m *model) agentSteps(s *state) {
	switch s.agent.does {
	case rests:
		if s.link.up != 0 {
			for i := range uint8(ringSlots) {
				if s.words[i].state == pub {
					n := m.step(s, "the agent reads the header in slot", -1, int(i))
					n.see(i)
					m.add(n)
				}
			}
		}
		m.restSteps(s)
	case takes:
		i := s.agent.slot
		n := m.step(s, "the agent takes", -1, int(i))
		w := s.words[i]
		same := w.state == pub && w.owner == s.agent.owner && w.ticket == s.agent.ticket
		if !same && !m.without(takeBySwap) {
			n.what = "the agent does not get" // Withdrawn
			n.post()
			m.add(n)
			return
		}
		n.enter(i)
		n.agent.group |= 1 << i
		if i += m.run(s.agent.message); i < ringSlots && n.words[i].state == pub {
			n.what = "the agent takes, and reads the header directly behind: slot"
			n.see(i)
		} else {
			n.what = "the agent takes, and posts its group: slot"
			n.post()
		}
		m.add(n)
	case moves: // OutLane.move
		n := m.step(s, "the agent moves the answer in slot", -1, int(s.agent.slot))
		n.agent = agent{open: n.agent.open, repeated: n.agent.repeated, refused: n.agent.refused}
		if w := s.words[s.agent.slot]; w.state == ans && w.owner == s.agent.owner && w.ticket == s.agent.ticket {
			n.freeRun(s.agent.slot, w.run, w.owner)
		} else {
			n.what = "the agent does not get the answer in slot"
		}
		m.add(n)
	case closes:
		n := m.step(s, "the agent has a last look at the words", -1, -1)
		n.lastLook()
		n.agent.does = rests
		if m.without(closedBeforeLastLook) {
			n.agent.does = shuts
		}
		m.add(n)
	case shuts: // only without closed-before-last-look
		n := m.step(s, "the agent marks the lane as closed", -1, -1)
		n.agent.open, n.agent.does = 0, rests
		m.add(n)
	}
}

// see is the first half of Requests.take: it copies word and header, and checks them.
func (n *next) see(i uint8) {
	w, a := n.words[i], &n.agent
	for j := uint8(1); j < w.run; j++ { // CheckRun
		f := n.words[i+j]
		if f.state != follow || f.owner != w.owner || f.run != j {
			n.fail(blamed)
		}
	}
	a.does, a.slot = takes, i
	a.owner, a.ticket, a.message = w.owner, w.ticket, n.bytes[i].message
}

// enter is the second half of Requests.take: Ring.Take, and OutLane.Admit.
func (n *next) enter(i uint8) {
	a := &n.agent
	if n.bytes[i].message != a.message {
		n.fail(unchecked)
	}
	run := n.model.run(a.message)
	n.words[i] = word{taken, a.owner, run, a.ticket}
	n.journal[i] = entry{taken: 1, owner: a.owner, run: run, ticket: a.ticket, message: a.message}
}

// post is OutLane.Post, if the agent has a group: the write reads the slots until it is
// complete.
func (n *next) post() {
	g := n.agent.group
	n.agent = agent{open: n.agent.open, repeated: n.agent.repeated, refused: n.agent.refused}
	if g == 0 {
		return
	}
	for x := range n.link.requests {
		if n.link.requests[x] == 0 {
			n.link.requests[x] = g
			break
		}
	}
	for i := range uint8(ringSlots) {
		if g>>i&1 != 0 {
			for j := i; j < i+n.journal[i].run; j++ {
				n.flight[j] = n.bytes[j]
			}
		}
	}
}

// restSteps are those that the agent takes between groups.
func (m *model) restSteps(s *state) {
	l := &s.link
	if (l.up != 0 || m.without(closeBeforeOutcomes)) && l.answers[0] != 0 {
		n := m.step(s, "answers arrive, in a group of", -1, int(l.answers[0]))
		n.land()
		m.add(n)
	}
	if l.up != 0 && l.delivered > 0 { // OutLane.sent
		n := m.step(s, "a write of requests completes, a group of", -1, int(l.requests[0]))
		g := n.shiftRequests()
		n.link.delivered--
		n.clearFlight(g)
		for i := range uint8(ringSlots) {
			if g>>i&1 != 0 && s.journal[i].answered != 0 {
				n.settle(i)
			}
		}
		m.add(n)
	}
	if l.up != 0 && l.lost != 0 {
		n := m.step(s, "the requesting end goes down", -1, -1)
		n.down()
		m.add(n)
	}
	m.spillSteps(s)
	for x := range s.client {
		life := s.client[x].life
		if life == killed { // Domain.Detach
			n := m.step(s, "the agent detaches client", x, -1)
			n.client[x].life = detached
			m.add(n)
		}
		if life == detached || life == hungUp && m.without(certainDeath) {
			n := m.step(s, "the agent buries client", x, -1)
			n.bury(x)
			m.add(n)
		}
	}
}

// spillSteps are those that begin to move an answer out of its slots: of a client that
// lives, and of one whose connection has ended.
func (m *model) spillSteps(s *state) {
	for i := range uint8(ringSlots) {
		w := s.words[i]
		if s.link.spills == 0 || w.state != ans {
			continue
		}
		n := m.step(s, "the agent spills the answer in slot", -1, int(i))
		n.link.spills--
		n.chance = true // it is late, or it is not
		switch x := w.owner - 1; s.client[x].life {
		case living:
			if c := s.client[x]; c.slot == i && c.ticket == w.ticket && (c.does == awaits || c.does == looks) {
				n.client[x].mail = s.bytes[i].kind
			}
			n.agent.does, n.agent.slot, n.agent.owner, n.agent.ticket = moves, i, w.owner, w.ticket
		case hungUp:
			n.what = "the agent moves an answer that nobody reads, in slot"
			n.freeRun(i, w.run, w.owner)
		default:
			continue
		}
		m.add(n)
	}
}

// land is OutLane.answers: the bytes are in the slots, and the agent judges them.
func (n *next) land() {
	l := &n.link
	g := l.answers[0]
	copy(l.answers[:], l.answers[1:])
	l.answers[maxGroups-1] = 0
	for i := range uint8(ringSlots) {
		if g>>i&1 == 0 {
			continue
		}
		j := n.journal[i]
		if j.taken == 0 || j.answered != 0 {
			n.fail(astray)
			return
		}
		for x := i; x < i+j.run; x++ {
			n.bytes[x] = n.mirror[x]
		}
		if b := n.bytes[i]; b.ticket != j.ticket || b.kind == request { // CheckAnswer
			n.agent.refused = 1
			n.down() // violation
			return
		}
		if n.incomplete(i) && !n.model.without(deferAnswer) {
			n.journal[i].answered = 1
		} else {
			n.settle(i)
		}
	}
}

// settle is OutLane.settle.
func (n *next) settle(i uint8) {
	j := n.journal[i]
	n.journal[i] = entry{} // strike
	switch n.client[j.owner-1].life {
	case living, killed: // Ring.Answer
		if n.words[i] != (word{taken, j.owner, j.run, j.ticket}) {
			n.fail(stolen)
		}
		n.words[i].state = ans
	default:
		n.freeRun(i, j.run, j.owner)
	}
}

// freeRun is Ring.Free, by the daemon for an owner that is gone.
func (n *next) freeRun(i, run, owner uint8) {
	for x := i; x < i+run; x++ {
		if n.words[x].owner != owner {
			n.fail(stolen)
		}
		n.words[x] = word{ticket: n.words[x].ticket}
	}
}

// outcome is OutLane.outcome.
func (n *next) outcome(i, kind uint8) {
	j := n.journal[i]
	n.bytes[i] = content{j.message, kind, j.ticket}
	n.settle(i)
}

// down is OutLane.Down.
func (n *next) down() {
	l := &n.link
	l.up, l.lost = 0, 1
	if !n.model.without(closeBeforeOutcomes) {
		l.answers = [maxGroups]uint8{}
	}
	for ; l.delivered > 0; l.delivered-- {
		n.clearFlight(n.shiftRequests())
	}
	for i := range uint8(ringSlots) {
		if n.journal[i].answered != 0 {
			n.settle(i)
		}
	}
	n.agent.does = closes
	if !n.model.without(closedBeforeLastLook) {
		n.agent.open = 0
	}
	for i := range uint8(ringSlots) {
		switch {
		case n.journal[i].taken == 0:
		case n.model.without(nothingAgain):
			n.words[i].state = pub
			n.journal[i] = entry{}
		case n.model.without(sentIsMaybe):
			n.outcome(i, notExecuted)
		default:
			n.outcome(i, maybe)
		}
	}
	if n.model.without(nothingAgain) {
		n.agent.open, n.agent.does = 0, rests
	}
}

// lastLook refuses what is only published.
func (n *next) lastLook() {
	for i := range uint8(ringSlots) {
		if n.words[i].state == pub {
			n.see(i)
			n.enter(i)
			n.outcome(i, notExecuted)
			n.post()
		}
	}
}

// bury is Domain.Bury for a client: Ring.Sweep.
func (n *next) bury(x int) {
	me := uint8(x + 1)
	keep := uint8(0) // slots before it belong to a run in the journal
	for i := range uint8(ringSlots) {
		w := n.words[i]
		switch {
		case w.state == free || w.owner != me:
		case w.state != follow && n.journal[i].taken != 0 && !n.model.without(sweepByJournal):
			keep = i + w.run
		case w.state == follow && i < keep:
		default:
			n.words[i] = word{ticket: w.ticket}
		}
	}
	c := &n.client[x]
	if c.life == hungUp {
		return // it lives: only without certain-death
	}
	c.life = buried
	*c = client{life: buried, done: c.done + min(c.does, 1)}
}

// shiftRequests takes the oldest group of requests off the wire.
func (n *next) shiftRequests() (group uint8) {
	q := &n.link.requests
	group = q[0]
	copy(q[:], q[1:])
	q[maxGroups-1] = 0
	return group
}

// clearFlight forgets what the writes of a group have read.
func (n *next) clearFlight(group uint8) {
	for i := range uint8(ringSlots) {
		if group>>i&1 != 0 {
			first := n.flight[i].message
			for j := i; j < ringSlots && n.flight[j].message == first; j++ {
				n.flight[j] = content{}
			}
		}
	}
}
