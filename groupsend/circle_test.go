package groupsend_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// circleClerk takes everything that is right, and notes what is not. What it refuses it takes from the ring.
type circleClerk struct {
	poster
	ring   *slots.Ring
	wrong  []int
	taken  []int
	why    error
	leaves bool
	// late are slots of messages that are right, and yet refused.
	late map[int]bool
}

func (c *circleClerk) Admit(i int, w slots.Word, _ *slots.Header, bad error) groupsend.Verdict {
	if c.late[i] {
		c.ring.Take(i, w)
		return groupsend.Refuse
	}
	if bad == nil {
		c.taken = append(c.taken, i)
		return groupsend.Send
	}
	c.wrong, c.why = append(c.wrong, i), bad
	if c.leaves {
		return groupsend.Leave
	}
	c.ring.Take(i, w)
	return groupsend.Refuse
}

func (c *circleClerk) Withdrawn(int) {}

// chain publishes one message for each element of after, in as many slots from 0 on: it comes after the one in that slot.
func (c *circleClerk) chain(t *testing.T, after ...int) {
	t.Helper()
	var runs []slots.Run
	for range after {
		u, err := c.ring.Claim(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, u)
	}
	for i, u := range runs {
		h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindOneWay, Order: 1, After: uint16(after[i]), AfterTicket: uint32(runs[after[i]].Ticket)}
		h.Encode(c.ring.Header(u))
		if !c.ring.Publish(u, 1) {
			t.Fatal("not published")
		}
	}
}

// A message that is refused, such as one that is too late, is out of the way of the one that comes after it, wherever that lies: nobody
// else would tell of it.
func TestRefusedInAChain(t *testing.T) {
	ring, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	clerk := &circleClerk{ring: ring, late: map[int]bool{1: true}}
	clerk.chain(t, 1, 2, 2)
	plan := groupsend.NewRequests(ring, 4)
	more := true
	for n := 0; more && n < 16; n++ {
		_, more = plan.Plan(clerk, 100)
	}
	if more || !slices.Equal(clerk.taken, []int{2, 0}) || len(clerk.wrong) > 0 {
		t.Errorf("taken %v, wrong %v, more %v", clerk.taken, clerk.wrong, more)
	}
}

// Of messages that come after each other in a circle one is refused, and the others are sent. Messages that wait for one
// that can be sent are left alone, however they lie.
func TestCircles(t *testing.T) {
	for name, c := range map[string]struct {
		after []int
		wrong int
	}{
		"two":                         {[]int{1, 0}, 1},
		"three":                       {[]int{2, 0, 1}, 1},
		"two circles":                 {[]int{1, 0, 3, 2}, 2},
		"one with a tail":             {[]int{1, 2, 3, 2}, 1},
		"one that a tail leads to":    {[]int{3, 0, 1, 0}, 1},
		"none, though the wrong way":  {[]int{1, 2, 3, 4, 5, 6, 7, 7}, 0},
		"none, and all after the one": {[]int{4, 4, 4, 4, 4}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ring, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
			clerk := &circleClerk{ring: ring}
			clerk.chain(t, c.after...)
			plan := groupsend.NewRequests(ring, 4)
			more := true
			for n := 0; more && n < 16; n++ {
				_, more = plan.Plan(clerk, 100)
			}
			if more || len(clerk.wrong) != c.wrong || len(clerk.taken) != len(c.after)-c.wrong {
				t.Errorf("wrong: slots %v, want %d; taken: %v of %d; more to do: %v", clerk.wrong, c.wrong, clerk.taken, len(c.after), more)
			}
			if c.wrong > 0 && !errors.Is(clerk.why, slots.ErrProtocol) {
				t.Errorf("they are wrong for %v", clerk.why)
			}
		})
	}
}

// Nobody waits for a message whose word says that it will never be taken.
func TestNotHeldByWhatIsNeverTaken(t *testing.T) {
	ring, mem := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	clerk := &circleClerk{ring: ring, leaves: true}
	clerk.chain(t, 0, 0)
	w := ring.Word(0)
	shm.Uint64At(mem, 8192).Store(uint64(slots.MakeWord(slots.Pub, 3, w.Owner(), w.Ticket()))) // slots 1 and 2 do not follow it
	if n, more := groupsend.NewRequests(ring, 4).Plan(clerk, 100); n != 1 || more || len(clerk.taken) != 1 || clerk.taken[0] != 1 {
		t.Errorf("taken: %v, more to do: %v", clerk.taken, more)
	}
}

// What is left published for ever counts, so that it does not make one Plan long, and does not keep the agent awake.
func TestWhatIsLeftCounts(t *testing.T) {
	const size = 512
	ring, mem := newRing(t, slots.Geometry{SlotSize: 128, Slots: size, MaxRun: 4})
	clerk := &circleClerk{ring: ring, leaves: true}
	for i := range size {
		shm.Uint64At(mem, 8192+8*i).Store(uint64(slots.MakeWord(slots.Pub, 2, 1, 7)))
	}
	plan := groupsend.NewRequests(ring, 4)
	plan.Rescan()
	plans, more := 0, true
	for ; more && plans < 100; plans++ {
		before := len(clerk.wrong)
		_, more = plan.Plan(clerk, 2)
		if n := len(clerk.wrong) - before; n > 2*64 {
			t.Fatalf("a Plan with two writes has looked at %d of them", n)
		}
	}
	if more || len(clerk.wrong) != size {
		t.Errorf("%d Plans, %d of %d looked at, more to do: %v", plans, len(clerk.wrong), size, more)
	}
	if allocs := testing.AllocsPerRun(10, func() {
		clerk.wrong = clerk.wrong[:0]
		plan.Rescan()
		plan.Plan(clerk, size)
	}); allocs > 0 {
		t.Errorf("a look at them makes %.0f allocations", allocs)
	}
}
