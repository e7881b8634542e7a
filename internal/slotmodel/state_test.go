package slotmodel

const (
	ringSlots    = 3 // slots of the ring
	clients      = 2 // processes of the requesting node; their attach ids are 1 and 2
	services     = 2 // processes of the answering node; their attach ids are 1 and 2
	maxMessages  = 4 // of all clients together, numbered from 1
	maxGroups    = 4 // on the wire in one direction
	stateWords   = 6 // 64-bit words of a packed state
	ticketValues = 8 // tickets of one slot that can be told apart
)

// state is all that a step can depend on. Every field is a small number, so that a
// state packs into few words.
type state struct {
	words   [ringSlots]word    // the slot words
	bytes   [ringSlots]content // the slots' bytes
	journal [ringSlots]entry   // OutLane.journal
	flight  [ringSlots]content // what a write that is not complete has read
	mirror  [ringSlots]content // the mirror's bytes
	answers [ringSlots]word    // the answer words
	records [ringSlots]record  // InLane.records
	client  [clients]client
	service [services]service
	fate    [maxMessages]fate
	agent   agent
	link    link
}

// word is a slot word or an answer word. In an answer word the states are Recv,
// Picked and Done.
type word struct{ state, owner, run, ticket uint8 }

// content is what the bytes of a slot say. Only a run's first slot has the ticket.
type content struct{ message, kind, ticket uint8 }

// Kinds of content.
const (
	request     = iota + 1
	answer      // the handler's
	notExecuted // an error that says so
	maybe       // may have been executed
)

// noOutcome is the outcome of a message that has none yet.
const noOutcome = 0

// entry is what the journal holds of a request that was taken.
type entry struct{ taken, answered, owner, run, ticket, message uint8 }

// record is what the answering daemon knows of a request.
type record struct{ active, seen, worker, run, ticket uint8 }

// Whether a process lives, and what its daemon knows of it.
const (
	living   = iota
	killed   // dead, and its daemon does not know
	hungUp   // its connection has ended, so that it is detached, but it lives
	detached // dead and detached
	buried
)

// client is a process with requests to send. What it does next is in does. mail is the
// kind of an answer that was spilled to it.
type client struct{ does, life, done, slot, off, ticket, mail uint8 }

// What a client does next.
const (
	idle      = iota
	claims    // the next slot of a run
	stores    // the word of a slot that it has seen free: only without claim-by-swap
	publishes // its request, which it writes first
	looks     // whether the lane has been closed
	awaits    // the answer
	revokes   // stores a word that it has seen published: only without revoke-by-swap
	frees     // the run, last slot first
	abandons  // a claim that could not be completed
	reads     // an answer that it has seen: only without acquire-by-swap
)

// service is a process with handlers, of which one runs at a time. old: the mirror
// that it runs in was left behind.
type service struct{ does, life, slot, ticket, old uint8 }

// What a service process does next.
const (
	waits   = iota
	seesOne // picks by a store what it has seen: only without pick-by-swap
	handles // a request, and writes the answer in place
	late    // writes an answer that it has marked: only without answer-then-done
)

// fate is what has become of a message.
type fate struct{ executed, outcome uint8 }

// agent is what the requesting agent is in the middle of.
type agent struct {
	does, slot        uint8
	owner, ticket     uint8 // of the word that it has seen
	message           uint8 // of the header that it has copied
	group             uint8 // first slots of the group that it collects, one bit each
	open              uint8 // Ring.State is LaneOpen
	repeated, refused uint8 // a write was repeated; a group or an answer was refused
}

// What an agent does next.
const (
	rests  = iota
	takes  // the run that it has seen
	closes // has a last look at the words of a lane that is down
	moves  // an answer that it has spilled
	shuts  // marks the lane as closed: only without closed-before-last-look
)

// link is the connection. Groups are sets of first slots, one bit each; 0 is none.
type link struct {
	up, far   uint8 // the requesting end is there, the answering end is
	lost      uint8
	requests  [maxGroups]uint8 // posted and not complete, oldest first
	delivered uint8            // how many of them have landed
	answers   [maxGroups]uint8
	kills, losses,
	repeats uint8 // faults that are left
	spills uint8 // spills that are left
}

// fields packs or unpacks every field, with the bits that it takes.
func (s *state) fields(c *coder) {
	for i := range ringSlots {
		w, a := &s.words[i], &s.answers[i]
		c.field(&w.state, 3)
		c.field(&w.owner, 2)
		c.field(&w.run, 2)
		c.field(&w.ticket, 3)
		c.field(&a.state, 2)
		c.field(&a.owner, 2)
		c.field(&a.run, 2)
		c.field(&a.ticket, 3)
		for _, b := range [...]*content{&s.bytes[i], &s.flight[i], &s.mirror[i]} {
			c.field(&b.message, 3)
			c.field(&b.kind, 3)
			c.field(&b.ticket, 3)
		}
		j, r := &s.journal[i], &s.records[i]
		c.field(&j.taken, 1)
		c.field(&j.answered, 1)
		c.field(&j.owner, 2)
		c.field(&j.run, 2)
		c.field(&j.ticket, 3)
		c.field(&j.message, 3)
		c.field(&r.active, 1)
		c.field(&r.seen, 1)
		c.field(&r.worker, 2)
		c.field(&r.run, 2)
		c.field(&r.ticket, 3)
	}
	for i := range s.client {
		p := &s.client[i]
		c.field(&p.does, 4)
		c.field(&p.life, 3)
		c.field(&p.done, 2)
		c.field(&p.slot, 2)
		c.field(&p.off, 2)
		c.field(&p.ticket, 3)
		c.field(&p.mail, 3)
	}
	for i := range s.service {
		p := &s.service[i]
		c.field(&p.does, 3)
		c.field(&p.life, 3)
		c.field(&p.slot, 2)
		c.field(&p.ticket, 3)
		c.field(&p.old, 1)
	}
	for i := range s.fate {
		c.field(&s.fate[i].executed, 2)
		c.field(&s.fate[i].outcome, 3)
	}
	a, l := &s.agent, &s.link
	c.field(&a.does, 3)
	c.field(&a.slot, 2)
	c.field(&a.owner, 2)
	c.field(&a.ticket, 3)
	c.field(&a.message, 3)
	c.field(&a.group, 3)
	c.field(&a.open, 1)
	c.field(&a.repeated, 1)
	c.field(&a.refused, 1)
	c.field(&l.up, 1)
	c.field(&l.far, 1)
	c.field(&l.lost, 1)
	for i := range maxGroups {
		c.field(&l.requests[i], 3)
		c.field(&l.answers[i], 3)
	}
	c.field(&l.delivered, 3)
	c.field(&l.kills, 2)
	c.field(&l.losses, 2)
	c.field(&l.repeats, 2)
	c.field(&l.spills, 2)
}

// packed is a state in the search's table.
type packed [stateWords]uint64

// coder goes over the fields of a state.
type coder struct {
	words  packed
	at     uint // bit
	unpack bool
	cut    uint8 // bits that did not fit their field
}

func (c *coder) field(p *uint8, bits uint) {
	if c.at%64+bits > 64 {
		c.at += 64 - c.at%64
	}
	w := &c.words[c.at/64]
	if c.unpack {
		*p = uint8(*w>>(c.at%64)) & (1<<bits - 1)
	} else {
		*w |= uint64(*p) << (c.at % 64)
		c.cut |= *p >> bits
	}
	c.at += bits
}

func (s *state) pack() packed {
	var c coder
	s.fields(&c)
	if c.cut != 0 {
		panic("slotmodel: a field is too narrow")
	}
	return c.words
}

func (k *packed) unpack() (s state) {
	s.fields(&coder{words: *k, unpack: true})
	return s
}

// normalise makes states alike that nothing can tell apart: it clears what nobody
// looks at any more, and numbers the tickets of each slot anew, from 0. Tickets of
// 40 bits never meet their like; all that matters is which are the same and which is
// newer.
func (s *state) normalise() {
	for i := range uint8(ringSlots) {
		if s.words[i].state == free && !s.onWire(i) && (s.agent.does != takes || i < s.agent.slot) {
			s.bytes[i] = content{}
		}
		if r := &s.records[i]; r.active == 0 {
			*r = record{seen: r.seen, ticket: r.ticket * r.seen}
			if !s.inHands(i) {
				s.answers[i] = word{}
			}
			if s.covering(i) < 0 && !s.onWayBack(i) && !s.inHands(i) {
				s.mirror[i] = content{}
			}
		}
	}
	for i := range uint8(ringSlots) {
		var refs [16]*uint8
		n := 0
		add := func(t *uint8, used bool) {
			if used {
				refs[n] = t
				n++
			} else {
				*t = 0
			}
		}
		add(&s.words[i].ticket, true)
		add(&s.answers[i].ticket, s.answers[i].state != 0)
		add(&s.bytes[i].ticket, s.bytes[i].message != 0)
		add(&s.flight[i].ticket, s.flight[i].message != 0)
		add(&s.mirror[i].ticket, s.mirror[i].message != 0)
		add(&s.journal[i].ticket, s.journal[i].taken != 0)
		add(&s.records[i].ticket, s.records[i].active|s.records[i].seen != 0)
		for x := range s.client {
			if c := &s.client[x]; c.slot == i {
				add(&c.ticket, c.does != idle)
			}
		}
		for x := range s.service {
			if c := &s.service[x]; c.slot == i {
				add(&c.ticket, c.does != waits)
			}
		}
		if s.agent.slot == i {
			add(&s.agent.ticket, s.agent.does == takes || s.agent.does == moves)
		}
		used := 0
		for _, t := range refs[:n] {
			used |= 1 << *t
		}
		var rank [2 * ticketValues]uint8
		next := uint8(0)
		for t := range rank {
			rank[t] = next
			if used>>t&1 != 0 {
				next++
			}
		}
		for _, t := range refs[:n] {
			*t = rank[*t]
		}
	}
}

// sortServices makes states alike that differ in which service process is which.
func (s *state) sortServices() {
	var keys [services]uint32
	for x := range s.service {
		p := &s.service[x]
		k := uint32(p.does)<<16 | uint32(p.life)<<12 | uint32(p.slot)<<10 | uint32(p.ticket)<<7 | uint32(p.old)<<6
		for i := range s.records {
			if int(s.records[i].worker) == x+1 {
				k |= 1 << i
			}
			if int(s.answers[i].owner) == x+1 {
				k |= 1 << (i + ringSlots)
			}
		}
		keys[x] = k
	}
	if keys[0] >= keys[1] {
		return
	}
	s.service[0], s.service[1] = s.service[1], s.service[0]
	for i := range s.records {
		if w := &s.records[i].worker; *w != 0 {
			*w = 3 - *w
		}
		if w := &s.answers[i].owner; *w != 0 {
			*w = 3 - *w
		}
	}
}

// inHands reports whether a service process is at work in slot i of the mirror.
func (s *state) inHands(i uint8) bool {
	for x := range s.service {
		p := &s.service[x]
		if p.does != waits && p.old == 0 && p.slot <= i && i < p.slot+max(1, s.answers[p.slot].run) {
			return true
		}
	}
	return false
}

// covering returns the first slot of the active record that slot i belongs to, or -1.
func (s *state) covering(i uint8) int {
	for h := range uint8(ringSlots) {
		if r := &s.records[h]; r.active != 0 && h <= i && i < h+r.run {
			return int(h)
		}
	}
	return -1
}

// onWayBack reports whether the answer in slot i of the mirror has still to be read.
func (s *state) onWayBack(i uint8) bool {
	all := uint8(0)
	for _, g := range s.link.answers {
		all |= g
	}
	for h := range i + 1 {
		if all>>h&1 != 0 && s.mirror[h].message == s.mirror[i].message {
			return true
		}
	}
	return false
}

// onWire reports whether a write that is not complete may still read slot i.
func (s *state) onWire(i uint8) bool { return s.link.up != 0 && s.flight[i].message != 0 }

// incomplete reports whether the write of the run at slot i is not complete.
func (s *state) incomplete(i uint8) bool {
	for _, g := range s.link.requests {
		if g>>i&1 != 0 {
			return true
		}
	}
	return false
}
