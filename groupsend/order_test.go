package groupsend_test

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/slots"
)

// orderClerk checks that the messages of each chain are taken in the order in which
// they were published. A message's method is its chain, its cookie its number.
type orderClerk struct {
	t    *testing.T
	ring *slots.Ring
	next []uint64
	// last is next before the last message, taken what was not yet given back.
	last  []uint64
	taken []slots.Run
}

func (c *orderClerk) Admit(i int, w slots.Word, h *slots.Header, bad error) groupsend.Verdict {
	if bad != nil {
		c.t.Errorf("slot %d: %v", i, bad)
		return groupsend.Refuse
	}
	c.last = append([]uint64(nil), c.next...)
	if h.Order != 0 {
		if h.Cookie != c.next[h.Method] {
			c.t.Errorf("chain %d: number %d, want %d", h.Method, h.Cookie, c.next[h.Method])
		}
		c.next[h.Method] = h.Cookie + 1
	}
	c.taken = append(c.taken, slots.Run{Index: i, Len: w.Run(), Ticket: w.Ticket()})
	return groupsend.Send
}

func (c *orderClerk) Withdrawn(int) {
	c.next, c.taken = c.last, c.taken[:len(c.taken)-1]
}

func (c *orderClerk) Part(int, int)        {}
func (c *orderClerk) Post(groupsend.Group) {}

// publish claims, writes and publishes a message of k slots, as number n of a chain.
func (c *orderClerk) publish(owner, chain, k int, n uint64, after slots.Run) slots.Run {
	for {
		u, err := c.ring.Claim(owner, k)
		if errors.Is(err, slots.ErrClosed) {
			return u // the test has failed
		}
		if err != nil {
			runtime.Gosched() // the planner makes room
			continue
		}
		h := slots.Header{Ticket: u.Ticket, Run: uint16(k), Kind: slots.KindRequest, Method: uint32(chain), Cookie: n}
		if chain > 0 {
			if after.Len == 0 {
				after = u
			}
			h.Order, h.After, h.AfterTicket = uint16(chain), uint16(after.Index), uint32(after.Ticket)
		}
		h.Encode(c.ring.Header(u))
		if !c.ring.Publish(u, owner) {
			c.t.Error("not published")
		}
		return u
	}
}

// Whatever way a message is found, by the cursor, as a hole, by a late claim or on a
// round over the whole ring, ordered ones are taken in the order of their publication,
// and all of them are taken.
func TestOrderedAreTakenInOrder(t *testing.T) {
	const chains, each = 6, 20000
	ring, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 5})
	plan := groupsend.NewRequests(ring, 7)
	c := &orderClerk{t: t, ring: ring, next: make([]uint64, chains+1)}
	var open atomic.Int32
	var all sync.WaitGroup
	for chain := range chains + 1 { // 0 has no order
		open.Add(1)
		all.Go(func() {
			defer open.Add(-1)
			var last slots.Run
			for n := range uint64(each) {
				last = c.publish(1+chain%3, chain, 1+int(n+uint64(chain))%5, n, last)
			}
		})
	}
	deadline := time.Now().Add(4 * time.Minute)
	for turn := 0; ; turn++ {
		done := open.Load() == 0
		if turn%16 == 0 {
			plan.Rescan()
		}
		n, more := plan.Plan(c, 1+turn%9)
		// In another order than they were taken, so that holes come up anywhere.
		for k := len(c.taken) - 1; k >= 0; k-- {
			u := c.taken[k]
			ring.Answer(u.Index, slots.MakeWord(slots.Pub, u.Len, ring.Word(u.Index).Owner(), u.Ticket))
			ring.Consume(u)
		}
		c.taken = c.taken[:0]
		if done && n == 0 && !more {
			break
		}
		if t.Failed() || time.Now().After(deadline) {
			t.Error("the planner gives up")
			ring.SetState(slots.LaneClosed)
			break
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
	all.Wait()
	for chain := 1; chain <= chains; chain++ {
		if c.next[chain] != each {
			t.Errorf("chain %d: %d of %d were taken", chain, c.next[chain], each)
		}
	}
}

// One that was published before waits as a hole, found after the one behind it on a
// round: both go in one Plan, in order.
func TestHeldUntilTheOneBefore(t *testing.T) {
	ring, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	c := &orderClerk{t: t, ring: ring, next: make([]uint64, 2)}
	plan := groupsend.NewRequests(ring, 1)
	for range 14 {
		u, err := ring.Claim(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		ring.Abort(u)
	}
	first := c.publish(1, 1, 1, 0, slots.Run{}) // in slot 14
	wrap, err := ring.Claim(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	ring.Abort(wrap)
	second := c.publish(1, 1, 1, 1, first)
	if second.Index >= first.Index {
		t.Fatalf("slots %d and %d", first.Index, second.Index)
	}
	plan.Rescan()
	if n, more := plan.Plan(c, 100); n != 2 || more {
		t.Errorf("took %d, more %v", n, more)
	}
	// Without the one before, and with one before that is not of this process.
	third := c.publish(1, 1, 1, 2, second)
	other := c.publish(2, 0, 1, 0, slots.Run{})
	c.publish(1, 1, 1, 3, slots.Run{Index: other.Index, Len: 1, Ticket: other.Ticket})
	if !ring.Revoke(third, 1) {
		t.Fatal("not revoked")
	}
	c.next[1] = 3
	if n, more := plan.Plan(c, 100); n != 2 || more {
		t.Errorf("took %d, more %v", n, more)
	}
}
