package slotmodel

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// cursorOffset is where docs/layout.md has a lane's cursor.
const cursorOffset = 4096

// replay does with a real ring what the model does with its own. The real one has
// more slots than that; those are left alone.
type replay struct {
	t    *testing.T
	mem  []byte
	ring *slots.Ring
	seen slots.Word // the agent's copy of a published word
}

// The functions of package slots agree with the model: on random ways through it, each
// change of a slot word or an answer word is one that a function makes, from the same
// word to the same word, and what fails in the model fails there.
func TestReplay(t *testing.T) {
	count := map[string]int{}
	for seed := range uint64(3000) {
		// With a rule that does not exist switched off, services keep their numbers.
		m := &model{slots: 2, scripts: [clients][]int{{1, 1}, {1}}, kills: 1, losses: 1, spills: 2, off: lastRule}
		g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 2}
		mem := shm.AlignedBytes(g.SegmentSize())
		ring, err := slots.NewRing(mem, g)
		if err != nil {
			t.Fatal(err)
		}
		r := &replay{t: t, mem: mem, ring: ring}
		way := rand.New(rand.NewPCG(seed, 0))
		s := m.first()
		var trace []string
		for range 100 {
			all := m.expand(&s)
			if len(all) == 0 {
				break
			}
			n := all[way.IntN(len(all))]
			if n.chance && way.IntN(4) > 0 { // so that something happens before it
				n = all[0]
			}
			trace = append(trace, n.String())
			count[n.what]++
			r.step(&s, &n)
			if t.Failed() {
				t.Fatalf("seed %d:\n\t%s", seed, strings.Join(trace, "\n\t"))
			}
			s = n.state
		}
	}
	for _, what := range []string{"the agent does not get", "answers arrive, in a group of", "the answering agent buries service", "the agent buries client", "the agent moves the answer in slot", "takes a spilled answer: client"} {
		if count[what] == 0 {
			t.Errorf("no way has %q", what)
		}
	}
}

// must fails the test if a function of the ring did not do what the model did.
func (r *replay) must(ok bool, what string, slot int) {
	r.t.Helper()
	if !ok {
		r.t.Errorf("%s does not do it in slot %d: %v, %v", what, slot, r.ring.Word(slot), r.ring.AnswerWord(slot))
	}
}

// step does the step from s to n and compares the words.
func (r *replay) step(s *state, n *next) {
	r.t.Helper()
	if n.what == "the agent does not get" {
		r.must(!r.ring.Take(int(s.agent.slot), r.seen), "Take", int(s.agent.slot))
	}
	if n.what == "the agent buries client" {
		r.ring.Sweep(func(owner int) bool { return owner == int(n.who)+1 }, func(i int) bool { return s.journal[i].taken != 0 })
	}
	r.refused(s)
	for i := range ringSlots {
		if s.words[i].state != n.words[i].state && n.what != "the agent buries client" {
			r.word(i, s.words[i], n.words[i])
		}
		if s.answers[i].state != n.answers[i].state || s.answers[i].owner != n.answers[i].owner {
			r.answer(i, s, n)
		}
	}
	if n.agent.does == takes && strings.HasPrefix(n.what, "the agent") && n.what != "the agent does not get" {
		r.seen = r.ring.Word(int(n.agent.slot))
		r.must(r.ring.CheckRun(int(n.agent.slot), r.seen) == nil, "CheckRun", int(n.agent.slot))
	}
	for i := range ringSlots {
		w, a := r.ring.Word(i), r.ring.AnswerWord(i)
		if m := n.words[i]; uint8(w.State()) != m.state || w.Owner() != int(m.owner) || w.Run() != int(m.run) {
			r.t.Errorf("slot %d is %v, in the model %+v", i, w, m)
		}
		if m := n.answers[i]; m.state != 0 && (uint8(a.State()) != m.state || a.Owner() != int(m.owner) || a.Run() != int(m.run)) {
			r.t.Errorf("answer word %d is %v, in the model %+v", i, a, m)
		}
	}
}

// refused tries what must fail: to revoke what is taken, and to withdraw what has
// been picked.
func (r *replay) refused(s *state) {
	r.t.Helper()
	for i := range ringSlots {
		w, a := r.ring.Word(i), r.ring.AnswerWord(i)
		if s.words[i].state == taken {
			r.must(!r.ring.Revoke(slots.Run{Index: i, Len: 1, Ticket: w.Ticket()}, w.Owner()), "failing Revoke", i)
		}
		if p := s.answers[i].state; p == picked || p == done {
			_, ok := r.ring.Pick(i, a.Owner())
			r.must(!ok && !r.ring.Withdraw(i, a), "failing Pick and Withdraw", i)
		}
	}
}

// word changes slot i's word from one state to another.
func (r *replay) word(i int, from, to word) {
	r.t.Helper()
	ring, w := r.ring, r.ring.Word(i)
	u := slots.Run{Index: i, Len: 1, Ticket: w.Ticket()}
	switch [2]uint8{from.state, to.state} {
	case [2]uint8{free, claim}:
		binary.LittleEndian.PutUint64(r.mem[cursorOffset:], uint64(i))
		got, err := ring.Claim(int(to.owner), 1)
		r.must(err == nil && got.Index == i && slots.TicketNewer(got.Ticket, w.Ticket()), "Claim", i)
	case [2]uint8{claim, pub}:
		r.must(ring.Publish(u, int(to.owner)), "Publish", i)
	case [2]uint8{pub, claim}:
		r.must(ring.Revoke(u, int(to.owner)), "Revoke", i)
	case [2]uint8{pub, taken}:
		r.must(ring.Take(i, r.seen), "Take", i)
	case [2]uint8{taken, ans}:
		r.must(ring.Answer(i, w) && ring.Answered(u, int(to.owner)), "Answer", i)
	case [2]uint8{pub, ans}: // refused in the last look
		r.must(ring.Take(i, w) && ring.Answer(i, w), "Take and Answer", i)
	case [2]uint8{pub, free}: // the same, of an owner that is gone
		r.must(ring.Take(i, w), "Take", i)
		ring.Free(i, 1)
	case [2]uint8{ans, read}:
		r.must(ring.Acquire(u, int(to.owner)) && !ring.Move(i, w), "Acquire", i)
	case [2]uint8{ans, free}: // an answer that is overdue
		r.must(ring.Move(i, w) && !ring.Acquire(u, int(from.owner)), "Move", i)
		ring.Free(i, 1)
	case [2]uint8{claim, free}, [2]uint8{read, free}, [2]uint8{taken, free}:
		ring.Free(i, 1)
	default:
		r.t.Errorf("slot %d goes from state %d to %d, by nobody", i, from.state, to.state)
	}
}

// answer changes slot i's answer word.
func (r *replay) answer(i int, s *state, n *next) {
	r.t.Helper()
	ring, a := r.ring, r.ring.AnswerWord(i)
	from, to := s.answers[i], n.answers[i]
	if from.state == recv && to.state != picked {
		r.must(ring.Withdraw(i, a) && ring.AnswerWord(i).State() == slots.Free, "Withdraw", i)
	}
	switch to.state {
	case recv:
		ticket := ring.Word(i).Ticket()
		if from.state == recv {
			ticket = a.Ticket() // to another process
		}
		ring.Deliver(i, int(to.run), int(to.owner), ticket)
	case picked:
		_, ok := ring.Pick(i, int(to.owner))
		r.must(ok, "Pick", i)
	case done:
		r.must(ring.Finish(slots.Run{Index: i, Len: int(to.run), Ticket: a.Ticket()}, int(to.owner)), "Finish", i)
	}
}
