package groupsend_test

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Whether the message is a run that many others come after is not looked at for each of them: a process could have
// thousands come after the longest run that there is, and keep its agent from all other domains.
func TestHeldBehindALongRun(t *testing.T) {
	var short, long time.Duration
	for range 4 { // others may have had the processor
		if short, long = heldPlan(t, 1), heldPlan(t, 511); long <= 6*short {
			return
		}
	}
	t.Errorf("a Plan takes %v where all are held by runs of 511 slots, and %v where those have one", long, short)
}

// heldPlan returns what a Plan takes in a ring of which one half are runs of size slots, each of which comes after
// the next, but for the last two, which come after each other. The other half come after the first.
func heldPlan(t *testing.T, size int) (took time.Duration) {
	const half = 32 << 10
	ring, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 2 * half, MaxRun: 511})
	var runs []slots.Run
	claim := func(k int) {
		u, err := ring.Claim(owner, k)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, u)
	}
	chain := half / 511
	for range chain {
		claim(size)
	}
	for range half {
		claim(1)
	}
	for i, u := range runs {
		after := runs[0]
		switch {
		case i < chain-1:
			after = runs[i+1]
		case i == chain-1:
			after = runs[i-1]
		}
		h := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindOneWay, Order: 1, After: uint16(after.Index), AfterTicket: uint32(after.Ticket)}
		h.Encode(ring.Header(u))
		if !ring.Publish(u, owner) {
			t.Fatal("not published")
		}
	}
	plan, clerk := groupsend.NewRequests(ring, groupsend.MaxCount), &circleClerk{ring: ring}
	for n := range 5 {
		began := time.Now()
		if took, _ := plan.Plan(clerk, 64); took > chain {
			t.Fatalf("Plan %d has taken %d: they are not held", n, took)
		}
		if d := time.Since(began); n == 0 || d < took {
			took = d
		}
	}
	return took
}

// Nor does anybody wait for what is seen to be no run only after those that come after it.
func TestNotHeldByWhatIsSeenToBeWrongLater(t *testing.T) {
	ring, mem := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	clerk := &circleClerk{ring: ring, leaves: true}
	clerk.chain(t, 1, 1)
	w := ring.Word(1)
	shm.Uint64At(mem, 8192+8).Store(uint64(slots.MakeWord(slots.Pub, 3, w.Owner(), w.Ticket()))) // slots 2 and 3 do not follow it
	if n, more := groupsend.NewRequests(ring, 4).Plan(clerk, 100); n != 1 || more || len(clerk.taken) != 1 || clerk.taken[0] != 0 {
		t.Errorf("taken: %v, more to do: %v", clerk.taken, more)
	}
}
