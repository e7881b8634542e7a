package agent

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// spillRig is a side whose agent looks when the test says so, and which sends spills
// to nobody but the test.
type spillRig struct {
	*side
	out     *OutLane
	in      *InLane
	service *rigWorker
	slow    *rigWorker
	asked   int // looks that the agent has asked for
	lists   [][]Overdue
}

func newSpillRig(t *testing.T) *spillRig {
	r := &spillRig{side: newSide(t, nil)}
	r.d.Looks.After = time.Second
	r.d.Looks.Later = func(after time.Duration) {
		if after != time.Second/2 {
			t.Errorf("the next look is after %s", after)
		}
		r.asked++
	}
	r.out, r.in = r.localLane(t)
	r.service, r.slow = r.addService(), r.addWorker(11)
	r.slow.view.Spill = func(list []Overdue) bool {
		r.lists = append(r.lists, list)
		return true
	}
	return r
}

// answered makes n calls of the slow worker that are answered.
func (r *spillRig) answered(t *testing.T, n, size int) (calls []*rigCall) {
	t.Helper()
	for k := range n {
		c := r.send(r.slow, r.out.Ring, size, false, byte(k))
		if c == nil {
			t.Fatal("no room")
		}
		calls = append(calls, c)
	}
	for range n {
		r.a.cycle()
		r.work(r.service, r.in.Ring, 64)
	}
	r.a.cycle()
	for _, c := range calls {
		if !c.ring.Answered(c.u, c.w.id) {
			t.Fatalf("slot %d: %v", c.u.Index, c.ring.Word(c.u.Index))
		}
	}
	return calls
}

// look lets the agent look, if it wants to.
func (r *spillRig) look() bool {
	if r.asked == 0 {
		return false
	}
	r.asked--
	r.a.Commands.Do(r.d.OnLook)
	for r.a.cycle() > 0 {
	}
	return true
}

// An answer that is not taken for three looks is spilled, one that is taken meanwhile
// is not, and when nothing is left nobody looks any more.
func TestOverdueAnswers(t *testing.T) {
	r := newSpillRig(t)
	calls := r.answered(t, 3, 200) // runs of three
	for k := range 3 {
		if len(r.lists) > 0 || !r.look() {
			t.Fatalf("before look %d: %d lists", k, len(r.lists))
		}
	}
	if len(r.lists) != 1 || len(r.lists[0]) != 3 {
		t.Fatalf("overdue: %v", r.lists)
	}
	list := r.lists[0]
	if r.look(); len(r.lists) != 1 {
		t.Error("what is being sent was found again")
	}
	spill, n := Pack(list, SpillMost)
	if n != 3 {
		t.Errorf("%d of 3 answers are packed", n)
	}
	// The worker takes one of them before the agent does.
	if !r.out.Ring.Acquire(calls[1].u, r.slow.id) {
		t.Fatal("not to be had")
	}
	r.d.Spilled(r.slow.view, list, len(spill), nil)
	if calls[0].ring.Answered(calls[0].u, r.slow.id) || r.out.Ring.Acquire(calls[0].u, r.slow.id) {
		t.Error("an answer that was moved is there still")
	}
	if w := r.out.Ring.Word(calls[1].u.Index); w.State() != slots.Read {
		t.Errorf("the answer that the worker has taken: %v", w)
	}
	r.out.Ring.Consume(calls[1].u)
	allFree(t, r.out.Ring, 0)
	if c := r.a.Count; c.SpilledAnswers != 2 || c.SpilledBytes != uint64(len(spill)) || r.slow.view.spilledAnswers != 2 || c.ProtocolErrors != 0 {
		t.Errorf("counted %+v", c)
	}
	answers, err := slots.ParseSpill(spill)
	if err != nil || len(answers) != 3 {
		t.Fatalf("%d answers, %v", len(answers), err)
	}
	for k, a := range answers {
		if a.Lane != rigLane || a.Run != calls[k].u || !bytes.Equal(a.Payload, bytes.Repeat([]byte{byte(k) + 1}, 200)) {
			t.Errorf("answer %d: %+v, want run %+v", k, a, calls[k].u)
		}
	}
	r.slow.view.Spilling = false
	for r.look() {
	}
	if r.d.Looks.due || r.d.Looks.traffic {
		t.Error("the agent goes on looking")
	}
	r.answered(t, 1, 8)
	if r.asked != 1 {
		t.Error("the agent does not look again")
	}
}

// A spill that cannot be sent leaves answers where they are, and is tried again.
func TestSpillFails(t *testing.T) {
	r := newSpillRig(t)
	c := r.answered(t, 1, 8)[0]
	for range 3 {
		r.look()
	}
	r.d.Spilled(r.slow.view, r.lists[0], 0, errors.New("no memory"))
	r.slow.view.Spilling = false
	if r.a.Count.SpillFailures != 1 || !r.look() || len(r.lists) != 2 {
		t.Fatalf("%d failures counted, %d tries", r.a.Count.SpillFailures, len(r.lists))
	}
	if !c.ring.Answered(c.u, c.w.id) {
		t.Error("the answer is gone")
	}
	r.d.Spilled(r.slow.view, r.lists[1], 100, nil)
	allFree(t, r.out.Ring, 0)
	// A worker that nobody can send to any more is asked again later too.
	r.answered(t, 1, 8)
	r.slow.view.Spill = func([]Overdue) bool { return false }
	r.slow.view.Spilling = false
	for range 3 {
		r.look()
	}
	if r.slow.view.Spilling {
		t.Error("it counts as being sent to")
	}
}

// Answers of a worker that is disconnected and lives do not keep their slots; those
// that it has acquired, and those that it claims, do.
func TestOverdueOfTheGone(t *testing.T) {
	r := newSpillRig(t)
	calls := r.answered(t, 3, 8)
	if !r.out.Ring.Acquire(calls[2].u, r.slow.id) {
		t.Fatal("not to be had")
	}
	claim, err := r.out.Ring.Claim(r.slow.id, 2)
	if err != nil {
		t.Fatal(err)
	}
	r.d.Detach(r.slow.view)
	for range 3 {
		r.look()
	}
	if len(r.lists) > 0 || r.a.Count.Orphans != 2 {
		t.Errorf("%d lists, %d orphans", len(r.lists), r.a.Count.Orphans)
	}
	if n := r.out.Ring.Held(r.slow.id); n != 3 {
		t.Errorf("it holds %d slots", n)
	}
	if w := r.out.Ring.Word(claim.Index); w.State() != slots.Claim {
		t.Errorf("its claim is %v", w)
	}
	r.d.Bury(r.slow.view)
	allFree(t, r.out.Ring, 0)
}

// Nothing is begun for a worker that goes between the look at its answers and the end of that look: whoever buries it
// unmaps what nobody else uses.
func TestOverdueOfWhoGoesMeanwhile(t *testing.T) {
	r := newSpillRig(t)
	r.answered(t, 2, 8)
	for range ripe - 1 {
		r.look()
	}
	r.a.Commands.Do(r.d.OnLook)
	r.a.cycle() // the ring is looked at, and the look has not ended
	if len(r.d.Looks.slow) != 1 {
		t.Fatalf("%d slow workers", len(r.d.Looks.slow))
	}
	r.d.Detach(r.slow.view)
	r.d.Bury(r.slow.view)
	r.a.cycle()
	if len(r.lists) > 0 || len(r.d.Looks.slow) > 0 || r.slow.view.Spilling {
		t.Errorf("%d lists, %d slow workers, spilling: %v", len(r.lists), len(r.d.Looks.slow), r.slow.view.Spilling)
	}
}

// Words and headers that another process of the domain has overwritten cost nobody
// slots that are on their way, and an answer that is damaged becomes an error.
func TestSpillOfTheDamaged(t *testing.T) {
	r := newSpillRig(t)
	calls := r.answered(t, 2, 8)
	busy := r.send(r.slow, r.out.Ring, 8, false, 9)
	r.a.cycle() // on its way
	mem := ringMemory[r.out.Ring]
	word := func(i int) slots.Word { return r.out.Ring.Word(i) }
	store := func(i int, w slots.Word) { shm.Uint64At(mem, 8192+8*i).Store(uint64(w)) }
	// A run over a slot that is on its way, and runs that leave the ring.
	long := slots.MakeWord(slots.Ans, 2, r.slow.id, word(calls[1].u.Index).Ticket())
	store(calls[1].u.Index, long)
	last := rigGeometry.Slots - 1
	store(last, slots.MakeWord(slots.Ans, 3, r.slow.id, 1))
	store(last-5, slots.MakeWord(slots.Ans, 0, r.slow.id, 1))
	store(last-6, slots.MakeWord(slots.Ans, 1, 77, 1)) // nobody's
	r.out.Ring.Header(calls[0].u)[0] ^= 0xff
	for range 3 {
		r.look()
	}
	spill, n := Pack(r.lists[0], SpillMost)
	answers, err := slots.ParseSpill(spill)
	if err != nil || n != len(r.lists[0]) {
		t.Fatalf("%d of %d answers, %v", n, len(r.lists[0]), err)
	}
	if a := answers[0]; a.Run != calls[0].u || a.Header.Status != slots.StatusMaybeExecuted || a.Header.CheckAnswer(rigGeometry, 1, a.Run.Ticket) != nil {
		t.Errorf("a damaged answer: %+v", a)
	}
	r.d.Spilled(r.slow.view, r.lists[0], len(spill), nil)
	if w := word(busy.u.Index); w.State() != slots.Taken {
		t.Errorf("the request on its way: %v", w)
	}
	if w := word(calls[0].u.Index); w.State() != slots.Free {
		t.Errorf("the damaged answer: %v", w)
	}
	r.out.check(t)
	// The rest is the vandal's.
	for _, i := range []int{calls[1].u.Index, last, last - 5, last - 6} {
		store(i, 0)
	}
}

func BenchmarkLook(b *testing.B) {
	s := newSide(b, nil)
	out, _ := s.localLane(b)
	for b.Loop() {
		out.age()
	}
}
