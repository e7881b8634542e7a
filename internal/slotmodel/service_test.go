package slotmodel

// serviceSteps are the steps of service process x.
func (m *model) serviceSteps(s *state, x int) {
	p, me := s.service[x], uint8(x+1)
	if p.life != living && p.life != hungUp {
		return
	}
	i := p.slot
	w := s.answers[i]
	mine := p.old == 0 && w.owner == me && w.ticket == p.ticket
	switch p.does {
	case waits:
		for i := range uint8(ringSlots) {
			if w := s.answers[i]; w.state != recv || w.owner != me {
				continue
			}
			n := m.step(s, "sees a request: service", x, int(i))
			n.service[x].does, n.service[x].slot, n.service[x].ticket = seesOne, i, s.answers[i].ticket
			if !m.without(pickBySwap) {
				n.what = "picks and starts its handler: service"
				n.pick(x)
			}
			m.add(n)
		}
	case seesOne:
		n := m.step(s, "stores PICKED and starts its handler: service", x, int(i))
		n.pick(x)
		m.add(n)
	case handles, late: // and Ring.Finish
		n := m.step(s, "writes the answer in place and marks it as done: service", x, int(i))
		n.service[x] = service{life: p.life}
		if p.old != 0 {
			m.add(n)
			return
		}
		if p.does == handles && m.without(answerThenDone) {
			n.what = "marks the slot before it has written the answer: service"
			n.service[x] = p
			n.service[x].does = late
		} else {
			if r := s.records[i]; r.active == 0 || r.worker != me || r.ticket != p.ticket {
				n.fail(trampled)
			}
			n.mirror[i].kind = answer
		}
		if mine && w.state == picked {
			n.answers[i].state = done
		}
		m.add(n)
	}
}

// pick is Ring.Pick, and the start of the handler.
func (n *next) pick(x int) {
	p := &n.service[x]
	w := &n.answers[p.slot]
	w.state, w.owner, w.ticket = picked, uint8(x+1), p.ticket
	p.does = handles
	b := n.mirror[p.slot]
	if b.message == 0 || b.kind != request || b.ticket != p.ticket {
		n.fail(mixedUp)
		return
	}
	f := &n.fate[b.message-1]
	f.executed++
	switch {
	case f.executed > 1:
		n.fail(twice)
	case f.outcome == notExecuted:
		n.fail(falseNot)
	case f.outcome == answer:
		n.fail(mixedUp)
	}
}
