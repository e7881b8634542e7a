package slotmodel

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
)

// kind is what went wrong.
type kind string

const (
	twice     kind = "executed twice"
	falseNot  kind = "said not to be executed, and executed"
	mixedUp   kind = "an answer, a request or an outcome that is another's"
	stolen    kind = "a slot of a living owner in other hands"
	reused    kind = "bytes that a write may still read are overwritten"
	astray    kind = "an answer lands in a slot that waits for none"
	trampled  kind = "a handler and somebody else write to the same slot"
	unchecked kind = "what is sent is not what was checked"
	blamed    kind = "a correct daemon is taken for a faulty one"
	stuck     kind = "rest is out of reach"
)

// model is the protocol with its bounds.
type model struct {
	slots                  uint8          // of the ring, at most ringSlots
	scripts                [clients][]int // the runs that each client sends, in turn
	kills, losses, repeats uint8
	spills                 uint8
	off                    rule // switched off; 0 for none
	want                   kind // look for this alone; "" for anything
	maxStates              int

	runs  [maxMessages + 1]uint8
	nexts []next // of the state that is looked at
}

func (m *model) without(r rule) bool { return m.off == r }

// run returns the slots of a message.
func (m *model) run(message uint8) uint8 { return m.runs[message] }

// next is a state after a step.
type next struct {
	state
	model     *model
	what      string
	who, slot int8  // -1 for none
	chance    bool  // nobody can count on it: a fault, or a request taken back
	ready     uint8 // first slots of answers to be posted at the end of the step
	bad       kind  // what the step has broken, if it has
}

func (m *model) step(s *state, what string, who, slot int) next {
	return next{state: *s, model: m, what: what, who: int8(who), slot: int8(slot)}
}

func (n *next) fail(k kind) {
	if n.bad == "" {
		n.bad = k
	}
}

func (m *model) add(n next) {
	n.invariants()
	n.normalise()
	if m.off == 0 {
		n.sortServices()
	}
	m.nexts = append(m.nexts, n)
}

// String describes the step.
func (n *next) String() string {
	text := n.what
	if n.who >= 0 {
		text += fmt.Sprintf(" %d", n.who+1)
	}
	switch {
	case n.slot < 0:
	case strings.HasSuffix(n.what, "group of"), strings.HasSuffix(n.what, "the group"):
		var first []string
		for i := range ringSlots {
			if n.slot>>i&1 != 0 {
				first = append(first, fmt.Sprint(i))
			}
		}
		text += " " + strings.Join(first, " and ")
	case n.who >= 0:
		text += fmt.Sprintf(", slot %d", n.slot)
	default:
		text += fmt.Sprintf(" %d", n.slot)
	}
	return text
}

// invariants checks what must hold in every state. What must hold at a step is
// checked there.
func (n *next) invariants() {
	for x := range n.client {
		c := &n.client[x]
		if c.life != living && c.life != hungUp || c.does == idle || c.does == stores {
			continue
		}
		// While a client is about to send or to free, nobody else changes the
		// words of its run; nor while it waits, as long as it is attached.
		run, _ := n.model.current(&n.state, x)
		w := n.words[c.slot]
		held := w.owner == uint8(x+1) && w.ticket == c.ticket && w.state != free
		if waiting := c.does == awaits || c.does == looks || c.does == revokes; waiting && (c.life == hungUp || c.mail != 0) {
			continue
		}
		if c.does == claims || c.does == abandons || c.does == frees {
			run = c.off
		}
		for j := uint8(1); j < run && held && !n.model.without(allBeforePublish); j++ {
			f := n.words[c.slot+j]
			held = f.owner == uint8(x+1) && f.state == follow
		}
		if !held {
			n.fail(stolen)
		}
	}
	if n.agent.refused != 0 && n.agent.repeated == 0 {
		n.fail(blamed)
	}
}

// atRest reports whether nothing is under way, and all that living clients have
// sent has its outcome.
func (m *model) atRest(s *state) bool {
	for i := range ringSlots {
		if s.words[i].state != free || s.journal[i].taken != 0 || s.records[i].active != 0 {
			return false
		}
	}
	for x := range s.client {
		if l := s.client[x].life; l != living && l != buried || int(s.client[x].done) != len(m.scripts[x]) {
			return false
		}
	}
	for x := range s.service {
		if p := s.service[x]; p.does != waits || p.life != living && p.life != buried {
			return false
		}
	}
	return s.agent.does == rests
}

// expand returns the states that can follow s.
func (m *model) expand(s *state) []next {
	m.nexts = m.nexts[:0]
	for x := range s.client {
		m.clientSteps(s, x)
	}
	m.agentSteps(s)
	m.mirrorSteps(s)
	for x := range s.service {
		m.serviceSteps(s, x)
	}
	m.linkSteps(s)
	m.faultSteps(s)
	return m.nexts
}

// result is what a search has found.
type result struct {
	states, steps int
	kinds         map[string]int // how often each kind of step was taken
	bad           kind           // "" if all is well
	trace         []string
}

// String returns the steps that lead to what went wrong.
func (r *result) String() string {
	if r.bad == "" {
		return " nothing goes wrong"
	}
	return "\n\t" + strings.Join(append(r.trace, "=> "+string(r.bad)), "\n\t")
}

var errBound = errors.New("slotmodel: more states than the bound")

// first returns the state that all begins with.
func (m *model) first() (s state) {
	message := 1
	m.runs[0] = 1
	for _, script := range m.scripts {
		for _, run := range script {
			m.runs[message] = uint8(run)
			message++
		}
	}
	s.link.up, s.link.far, s.agent.open = 1, 1, 1
	s.link.kills, s.link.losses, s.link.repeats = m.kills, m.losses, m.repeats
	s.link.spills = m.spills
	return s
}

// search looks at every state, those that are fewest steps away first, until one
// breaks an invariant. Then it sees whether all can come to rest.
func (m *model) search() (result, error) {
	first := m.first()
	t := newTable()
	t.find(first.pack(), -1)
	var from, to []int32 // steps that are no chance
	r := result{kinds: map[string]int{}}
	for at := 0; at < len(t.states); at++ {
		s := t.states[at].unpack()
		for _, n := range m.expand(&s) {
			r.steps++
			r.kinds[n.what]++
			switch {
			case n.bad == "":
			case m.want != "" && m.want != n.bad:
				continue // nor what follows from it
			default:
				r.states, r.bad = len(t.states), n.bad
				r.trace = append(m.trace(t, at), n.String())
				return r, nil
			}
			k := t.find(n.pack(), at)
			if !n.chance {
				from, to = append(from, int32(at)), append(to, int32(k))
			}
		}
		if len(t.states) > m.maxStates {
			return r, errBound
		}
	}
	r.states = len(t.states)
	if lost := m.unrestful(t, from, to); lost >= 0 {
		r.bad, r.trace = stuck, m.trace(t, lost)
	}
	return r, nil
}

// unrestful returns the first state from which no steps but those of chance lead to
// rest, or -1.
func (m *model) unrestful(t *table, from, to []int32) int {
	// The steps by where they lead: those to state k are at back[start[k]:start[k+1]].
	start := make([]int32, len(t.states)+1)
	for _, k := range to {
		start[k+1]++
	}
	for k := range t.states {
		start[k+1] += start[k]
	}
	back := make([]int32, len(from))
	fill := append([]int32(nil), start...)
	for x, k := range to {
		back[fill[k]] = from[x]
		fill[k]++
	}
	good := make([]bool, len(t.states))
	var todo []int32
	for k := range t.states {
		if s := t.states[k].unpack(); m.atRest(&s) {
			good[k] = true
			todo = append(todo, int32(k))
		}
	}
	for len(todo) > 0 {
		k := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range back[start[k]:start[k+1]] {
			if !good[p] {
				good[p] = true
				todo = append(todo, p)
			}
		}
	}
	for k := range good {
		if !good[k] {
			return k
		}
	}
	return -1
}

// trace returns the steps that lead to a state.
func (m *model) trace(t *table, to int) []string {
	var steps []string
	for k := to; t.parents[k] >= 0; k = int(t.parents[k]) {
		s := t.states[t.parents[k]].unpack()
		for _, n := range m.expand(&s) {
			if n.pack() == t.states[k] {
				steps = append(steps, n.String())
				break
			}
		}
	}
	for i, j := 0, len(steps)-1; i < j; i, j = i+1, j-1 {
		steps[i], steps[j] = steps[j], steps[i]
	}
	return steps
}

// table holds the states that were found, each once.
type table struct {
	states  []packed
	parents []int32
	slots   []int32 // index of a state plus one, by hash; open addressing
	seed    maphash.Seed
}

func newTable() *table { return &table{slots: make([]int32, 1<<16), seed: maphash.MakeSeed()} }

// find returns the index of a state, which it adds if it is new.
func (t *table) find(k packed, parent int) int {
	mask := uint64(len(t.slots) - 1)
	h := maphash.Comparable(t.seed, k) & mask
	for ; t.slots[h] != 0; h = (h + 1) & mask {
		if x := int(t.slots[h]) - 1; t.states[x] == k {
			return x
		}
	}
	t.states, t.parents = append(t.states, k), append(t.parents, int32(parent))
	t.slots[h] = int32(len(t.states))
	if 2*len(t.states) > len(t.slots) {
		t.grow()
	}
	return len(t.states) - 1
}

func (t *table) grow() {
	t.slots = make([]int32, 2*len(t.slots))
	mask := uint64(len(t.slots) - 1)
	for x := range t.states {
		h := maphash.Comparable(t.seed, t.states[x]) & mask
		for t.slots[h] != 0 {
			h = (h + 1) & mask
		}
		t.slots[h] = int32(x + 1)
	}
}
