package slots_test

import (
	"fmt"
	"testing"

	"github.com/rdmad/rdmad/slots"
)

// A worker can die at any instruction. Between two of its stores nothing about
// a ring changes, so a crash point is a number of stores made. A life is the
// whole list of stores of one message, and of one claim that fails.
type step struct {
	name string
	do   func()
	// covered says that the daemon's journal has the run after this step.
	covered bool
}

const deadOwner, liveOwner = 7, 8

// life lists the stores of a message of k slots at i, in order: the worker's,
// which are written here word by word, and the daemon's.
func life(r *slots.Ring, mem []byte, i, k int) (steps []step) {
	var u slots.Run
	add := func(covered bool, name string, do func()) { steps = append(steps, step{name, do, covered}) }
	free := func(x int) {
		add(false, fmt.Sprintf("free %d", x), func() {
			setWord(mem, x, slots.MakeWord(slots.Free, 0, 0, r.Word(x).Ticket()))
		})
	}
	claim := func() {
		for j := range k {
			add(false, fmt.Sprintf("claim %d", j), func() {
				w := slots.MakeWord(slots.Follow, j, deadOwner, r.Word(i+j).Ticket()+1)
				if j == 0 {
					w = slots.MakeWord(slots.Claim, k, deadOwner, r.Word(i).Ticket()+1)
					u = slots.Run{Index: i, Len: k, Ticket: w.Ticket()}
				}
				setWord(mem, i+j, w)
			})
		}
	}
	claim()
	for j := k - 1; j >= 0; j-- { // as if the slot behind was not free
		free(i + j)
	}
	claim()
	add(false, "write", func() { r.Payload(u)[0] = 1 })
	add(false, "publish", func() { r.Publish(u, deadOwner) })
	add(false, "revoke", func() { r.Revoke(u, deadOwner) })
	add(false, "publish again", func() { r.Publish(u, deadOwner) })
	add(true, "journal", func() {}) // covered before the word says TAKEN
	add(true, "take", func() { r.Take(i, r.Word(i)) })
	add(true, "send", func() {})
	add(false, "answer", func() { r.Answer(i, r.Word(i)) })
	for j := k - 1; j >= 0; j-- {
		free(i + j)
	}
	return steps
}

func TestSweepAtEveryCrashPoint(t *testing.T) {
	g := slots.Geometry{SlotSize: 128, Slots: 24, MaxRun: 8}
	for _, k := range []int{1, 2, 3, 8} {
		for _, at := range []int{0, 5, 24 - k} {
			r, mem := newRing(t, g)
			points := len(life(r, mem, at, k))
			for die := 0; die <= points; die++ {
				name := "start"
				r, mem := newRing(t, g)
				// Neighbours of a live owner before and behind the run.
				others := 0
				for _, x := range []int{at - 2, at + k} {
					if x >= 0 && x+2 <= g.Slots {
						setWord(mem, x, slots.MakeWord(slots.Pub, 2, liveOwner, 5))
						setWord(mem, x+1, slots.MakeWord(slots.Follow, 1, liveOwner, 5))
						others += 2
					}
				}
				covered := false
				for _, s := range life(r, mem, at, k)[:die] {
					s.do()
					name, covered = s.name, s.covered
				}
				before := make([]uint64, g.Slots)
				for i := range before {
					before[i] = r.Word(i).Ticket()
				}
				r.Sweep(only(deadOwner), func(i int) bool { return covered && i == at })
				want := g.Slots - others
				if covered {
					want -= k
					if err := r.CheckRun(at, r.Word(at)); err != nil {
						t.Errorf("k %d at %d, died after %s: the covered run is torn: %v", k, at, name, err)
					}
				}
				if got := freeSlots(r); got != want {
					t.Errorf("k %d at %d, died after %s: %d slots free, want %d", k, at, name, got, want)
					dump(t, r)
				}
				if covered { // the answer comes, or the peer says that it never will
					r.Free(at, k)
				}
				if got := freeSlots(r); got != g.Slots-others {
					t.Errorf("k %d at %d, died after %s: %d slots free in the end", k, at, name, got)
				}
				for i := range before {
					if r.Word(i).Ticket() != before[i] {
						t.Errorf("k %d at %d, died after %s: the sweep changed the ticket of %d", k, at, name, i)
					}
				}
				if got := r.Sweep(only(liveOwner), func(int) bool { return false }); got != others {
					t.Errorf("k %d at %d, died after %s: neighbours lost %d slots", k, at, name, others-got)
				}
			}
		}
	}
}

// When the sweep reaches a first slot, the rest of its run is still there: no
// live process can have been let into the middle of a run with a first slot.
func TestSweepIsHeadFirst(t *testing.T) {
	g := slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 8}
	r, _ := newRing(t, g)
	var runs []slots.Run
	for _, k := range []int{3, 1, 8, 2, 5} {
		u, err := r.Claim(deadOwner, k)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, u)
	}
	looked := 0
	r.Sweep(only(deadOwner), func(i int) bool {
		if i != runs[looked].Index {
			t.Errorf("asked about slot %d, want %d", i, runs[looked].Index)
		}
		for j := i; j < runs[len(runs)-1].Index+5; j++ {
			if r.Word(j).State() == slots.Free {
				t.Errorf("slot %d is free before the first slot of its run, at most %d, was", j, i)
			}
		}
		for j := range i {
			if r.Word(j).State() != slots.Free {
				t.Errorf("slot %d is left behind", j)
			}
		}
		looked++
		return false
	})
	if looked != len(runs) || freeSlots(r) != g.Slots {
		t.Errorf("looked at %d runs, %d slots free", looked, freeSlots(r))
	}
}

// Slots whose words no correct process writes do not survive their owner.
func TestSweepOfNonsense(t *testing.T) {
	g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4}
	r, mem := newRing(t, g)
	setWord(mem, 0, slots.MakeWord(7, 511, deadOwner, 1))
	setWord(mem, 15, slots.MakeWord(slots.Taken, 511, deadOwner, 1))
	setWord(mem, 7, slots.MakeWord(slots.Follow, 400, deadOwner, 1))
	if n := r.Sweep(only(deadOwner), func(int) bool { return false }); n != 3 || freeSlots(r) != 16 {
		t.Errorf("freed %d", n)
	}
}
