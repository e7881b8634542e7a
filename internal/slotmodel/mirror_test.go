package slotmodel

// mirrorSteps are the steps of the answering agent, each of which nothing else of it
// can interrupt.
func (m *model) mirrorSteps(s *state) {
	l := &s.link
	if l.far != 0 && int(l.delivered) < maxGroups && l.requests[l.delivered] != 0 {
		g := l.requests[l.delivered]
		n := m.step(s, "requests land and are dispatched, a group of", -1, int(g))
		n.link.delivered++
		if l.up == 0 { // the sender has closed: nobody waits for the completion
			n.link.delivered = 0
			n.shiftRequests()
		}
		n.deliver(g, false)
		if l.up == 0 {
			n.clearFlight(g)
		}
		m.add(n)
	}
	for x := range s.service {
		if s.service[x].life != buried && s.hasDone(x) {
			n := m.step(s, "the answering agent collects what it has done: service", x, -1)
			n.collectAll(x)
			m.add(n)
		}
	}
	if l.far != 0 && l.lost != 0 {
		n := m.step(s, "the answering end goes down", -1, -1)
		n.farDown()
		m.add(n)
	}
	for x := range s.service {
		life := s.service[x].life
		if life == killed {
			n := m.step(s, "the answering agent detaches service", x, -1)
			n.detachService(x, detached)
			m.add(n)
		}
		if life == detached || life == hungUp && m.without(certainDeath) {
			n := m.step(s, "the answering agent buries service", x, -1)
			n.buryService(x)
			m.add(n)
		}
	}
}

// deliver is InLane.deliver. again: the fabric repeats a write that has landed.
func (n *next) deliver(group uint8, again bool) {
	for i := range uint8(ringSlots) {
		if group>>i&1 == 0 {
			continue
		}
		message := n.flight[i].message
		for j := i; j < i+n.model.run(message); j++ {
			if n.link.up != 0 && n.flight[j] != n.bytes[j] && !again {
				n.fail(reused) // what the write reads has changed
			}
			if !again && n.inHands(j) {
				n.fail(trampled)
			}
			n.mirror[j] = n.flight[j]
		}
	}
	defer n.sendAnswers() // those of requests that are refused
	for i := range uint8(ringSlots) {
		if group>>i&1 == 0 {
			continue
		}
		b := n.flight[i]
		run := n.model.run(b.message)
		for j := i; j < i+run; j++ {
			if n.covering(j) >= 0 {
				n.refuseGroup()
				return
			}
		}
		if r := n.records[i]; r.seen != 0 && b.ticket <= r.ticket && !n.model.without(newTicket) {
			n.refuseGroup()
			return
		}
		n.records[i] = record{active: 1, seen: 1, run: run, ticket: b.ticket}
		n.dispatch(i)
	}
}

// refuseGroup is InLane.violation: the lane goes down.
func (n *next) refuseGroup() {
	n.agent.refused = 1
	n.farDown()
}

// dispatch is InLane.dispatch: the service with the fewest requests gets it.
func (n *next) dispatch(i uint8) {
	best, least := -1, ringSlots+1
	for x := range n.service {
		if l := n.service[x].life; l != living && l != killed {
			continue
		}
		has := 0
		for _, r := range n.records {
			if r.active != 0 && int(r.worker) == x+1 {
				has++
			}
		}
		if has < least {
			best, least = x, has
		}
	}
	if best < 0 {
		n.refuse(i, notExecuted) // nobody serves it
		return
	}
	r := &n.records[i]
	r.worker = uint8(best + 1)
	n.answers[i] = word{recv, r.worker, r.run, r.ticket} // Ring.Deliver
}

// finished is InLane.finished.
func (n *next) finished(i uint8) {
	r := &n.records[i]
	if n.answers[i] != (word{done, r.worker, r.run, r.ticket}) {
		return
	}
	if n.mirror[i].kind != answer { // CheckAnswer
		n.refuse(i, maybe)
		return
	}
	n.done(i)
}

// refuse is InLane.refuse.
func (n *next) refuse(i, kind uint8) {
	n.mirror[i].kind = kind
	n.done(i)
}

// done is InLane.done.
func (n *next) done(i uint8) {
	r := &n.records[i]
	r.active, r.worker = 0, 0
	if n.link.far != 0 {
		n.ready |= 1 << i
	}
}

// sendAnswers is InLane.Send, at the end of a cycle: answers that are ready and lie
// directly behind one another go in one group.
func (n *next) sendAnswers() {
	group := uint8(0)
	for i := uint8(0); i < ringSlots; {
		if n.ready>>i&1 != 0 {
			group |= 1 << i
			i += n.model.run(n.mirror[i].message)
			continue
		}
		n.postAnswers(group)
		group = 0
		i++
	}
	n.postAnswers(group)
	n.ready = 0
}

func (n *next) postAnswers(group uint8) {
	for x := range n.link.answers {
		if n.link.answers[x] == 0 {
			n.link.answers[x] = group
			return
		}
	}
}

// farDown is InLane.Down: what no handler has started is dropped.
func (n *next) farDown() {
	l := &n.link
	l.far, l.lost = 0, 1
	for x := int(l.delivered); x < maxGroups; x++ {
		n.clearFlight(l.requests[x]) // can land no more
		l.requests[x] = 0
	}
	n.ready = 0
	for i := range n.records {
		if n.records[i].active != 0 && n.answers[i].state == recv { // Withdraw
			n.answers[i] = word{}
			n.done(uint8(i))
		}
	}
}

// detachService is Domain.Detach: what service x has not started goes to another.
func (n *next) detachService(x int, life uint8) {
	n.collectAll(x)
	n.service[x].life = life
	for i := range uint8(ringSlots) {
		r := n.records[i]
		if r.active == 0 || int(r.worker) != x+1 {
			continue
		}
		if n.answers[i].state == recv || n.model.without(startedStays) {
			n.records[i].worker = 0
			n.dispatch(i)
		}
	}
	n.sendAnswers()
}

// buryService is Domain.Bury for a service.
func (n *next) buryService(x int) {
	n.collectAll(x)
	for i := range uint8(ringSlots) {
		if r := n.records[i]; r.active != 0 && int(r.worker) == x+1 {
			kind := uint8(maybe)
			if n.model.without(startedIsMaybe) {
				kind = notExecuted
			}
			n.refuse(i, kind)
		}
	}
	n.sendAnswers()
	if n.service[x].life != hungUp {
		n.service[x] = service{life: buried}
	}
}

// collectAll is Domain.collectAll, and the sending of what it finds.
func (n *next) collectAll(x int) {
	for i := range uint8(ringSlots) {
		if n.isDone(x, i) {
			n.finished(i)
		}
	}
	n.sendAnswers()
}

// isDone reports whether slot i has an answer of service x to collect.
func (s *state) isDone(x int, i uint8) bool {
	return s.answers[i].state == done && s.records[i].active != 0 && int(s.records[i].worker) == x+1
}

func (s *state) hasDone(x int) bool {
	for i := range uint8(ringSlots) {
		if s.isDone(x, i) {
			return true
		}
	}
	return false
}
