package groupsend_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// clerk admits everything and remembers the groups. It keeps its memory.
type clerk struct {
	poster
	shown int
	admit func(i int) bool
}

func (c *clerk) Admit(i int, _ slots.Word, _ *slots.Header, bad error) groupsend.Verdict {
	c.shown++
	return sendIf(bad == nil && (c.admit == nil || c.admit(i)))
}

func sendIf(good bool) groupsend.Verdict {
	if good {
		return groupsend.Send
	}
	return groupsend.Refuse
}

func (c *clerk) Withdrawn(int) {}

func newRing(t testing.TB, g slots.Geometry) (*slots.Ring, []byte) {
	t.Helper()
	mem := shm.AlignedBytes(g.SegmentSize())
	r, err := slots.NewRing(mem, g)
	if err != nil {
		t.Fatal(err)
	}
	return r, mem
}

// claim claims a run and writes a header of the given payload length.
func claim(t testing.TB, r *slots.Ring, length int) slots.Run {
	t.Helper()
	u, err := r.Claim(owner, r.Geometry().RunFor(length))
	if err != nil {
		t.Fatal(err)
	}
	h := slots.Header{Ticket: u.Ticket, Length: uint32(length), Run: uint16(u.Len), Kind: slots.KindOneWay}
	h.Encode(r.Header(u))
	return u
}

func send(t testing.TB, r *slots.Ring, length int) slots.Run {
	t.Helper()
	u := claim(t, r, length)
	if !r.Publish(u, owner) {
		t.Fatalf("publish of %+v", u)
	}
	return u
}

func expect(t *testing.T, p *groupsend.Requests, want string) {
	t.Helper()
	c := &clerk{}
	n, more := p.Plan(c, 100)
	if got := fmt.Sprint(n, more, c); got != want {
		t.Errorf("planned %s, want %s", got, want)
	}
}

var wide = slots.Geometry{SlotSize: 128, Slots: 1024, MaxRun: 16}

func TestGroupSendOff(t *testing.T) {
	r, _ := newRing(t, wide)
	for _, max := range []int{1, 0, -5} {
		p := groupsend.NewRequests(r, max)
		p.Plan(&clerk{}, 100)
		send(t, r, 10)
		send(t, r, 100)
		i := int(r.Cursor()) - 3
		expect(t, p, fmt.Sprintf("2 false [{%d 1 74} {%d 1 164}]", i, i+1))
	}
}

func TestGroupsHoldAtMost255(t *testing.T) {
	r, _ := newRing(t, wide)
	p := groupsend.NewRequests(r, 1<<20)
	for range 600 {
		send(t, r, 0)
	}
	expect(t, p, "600 false [{0 255 32576} {255 255 32576} {510 90 11456}]")
}

func TestHoles(t *testing.T) {
	r, _ := newRing(t, wide)
	p := groupsend.NewRequests(r, 255)
	send(t, r, 1)
	slow := claim(t, r, 2)
	send(t, r, 3)
	aborted := claim(t, r, 4)
	last := claim(t, r, 5)
	expect(t, p, "2 false [{0 1 65} {2 1 67}]")
	expect(t, p, "0 false []")
	r.Publish(slow, owner)
	r.Abort(aborted)
	expect(t, p, "1 false [{1 1 66}]")
	// A hole that is published together with what is new behind it.
	r.Publish(last, owner)
	send(t, r, 6)
	expect(t, p, "2 false [{4 2 198}]")
	expect(t, p, "0 false []")
}

// A message that was revoked under the sender's eyes is looked at again.
func TestRevokedIsLookedAtAgain(t *testing.T) {
	r, _ := newRing(t, wide)
	p := groupsend.NewRequests(r, 255)
	first, u := send(t, r, 0), send(t, r, 0)
	c := &clerk{admit: func(i int) bool { return i != u.Index || r.Revoke(u, owner) }}
	if n, more := p.Plan(c, 10); n != 1 || more || len(c.groups) != 1 || c.groups[0].Index != first.Index {
		t.Errorf("planned %d, %v: %v", n, more, c.groups)
	}
	r.Publish(u, owner)
	expect(t, p, "1 false [{1 1 64}]")
}

// A message that is refused and left as it is splits a group, and is shown once.
func TestRefusedSplitsAGroup(t *testing.T) {
	r, _ := newRing(t, wide)
	p := groupsend.NewRequests(r, 255)
	for range 5 {
		send(t, r, 0)
	}
	c := &clerk{admit: func(i int) bool { return i != 2 }}
	if n, more := p.Plan(c, 10); n != 4 || more || c.String() != "[{0 2 192} {3 2 192}]" {
		t.Errorf("planned %d, %v: %v", n, more, c)
	}
	if c.shown != 5 {
		t.Errorf("shown %d messages, want 5", c.shown)
	}
}

// A run that another process of the domain has torn is shown as bad and not sent.
func TestTornRun(t *testing.T) {
	r, mem := newRing(t, wide)
	p := groupsend.NewRequests(r, 255)
	send(t, r, 0)
	u := send(t, r, 200)
	shm.Uint64At(mem, 8192+8*(u.Index+1)).Store(0)
	send(t, r, 0)
	c := &clerk{}
	if n, more := p.Plan(c, 10); n != 2 || more || c.shown != 3 || c.String() != fmt.Sprintf("[{0 1 64} {%d 1 64}]", u.Index+u.Len) {
		t.Errorf("planned %d, %v, %d shown: %v", n, more, c.shown, c)
	}
}

func TestLappedAndHostileCursor(t *testing.T) {
	g := slots.Geometry{SlotSize: 128, Slots: 19, MaxRun: 4}
	for _, cursor := range []uint64{0, 1, 18, 19, 20, 1000, 1 << 40, 1<<64 - 20, 1<<64 - 1} {
		r, mem := newRing(t, g)
		p := groupsend.NewRequests(r, 1)
		for range g.Slots {
			send(t, r, 0)
		}
		shm.Uint64At(mem, 4096).Store(cursor)
		p.Rescan()
		c := &clerk{}
		sum := 0
		for range 10 * g.Slots { // bounded work, group by group
			n, more := p.Plan(c, 1)
			sum += n
			if !more {
				break
			}
		}
		if sum != g.Slots || c.shown != g.Slots {
			t.Errorf("cursor %d: %d messages sent, %d shown, want %d", cursor, sum, c.shown, g.Slots)
		}
	}
	// More than a ring's worth of claims between two looks.
	r, _ := newRing(t, g)
	p := groupsend.NewRequests(r, 255)
	for range 3 * g.Slots {
		r.Abort(claim(t, r, 0))
	}
	send(t, r, 0)
	expect(t, p, "1 false [{0 1 64}]")
}

// A claim that succeeded behind the cursor, in slots that the planner has
// passed when they were free, is gone back to.
func TestLateClaimIsFound(t *testing.T) {
	r, mem := newRing(t, wide)
	p := groupsend.NewRequests(r, 255)
	for range 10 {
		r.Abort(claim(t, r, 0))
	}
	expect(t, p, "0 false []")
	// A worker that read the cursor at 3 and was stopped until now.
	word := shm.Uint64At(mem, 8192+8*3)
	u := slots.Run{Index: 3, Len: 1, Ticket: r.Word(3).Ticket() + 1}
	word.Store(uint64(slots.MakeWord(slots.Claim, 1, owner, u.Ticket)))
	h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest}
	h.Encode(r.Header(u))
	shm.Uint64At(mem, 4608).Store(3 + 1)
	r.Publish(u, owner)
	expect(t, p, "1 false [{3 1 64}]")
}

// Claims begin at slot 0 again once they have come as far as the window and all have been looked at, and what is
// claimed behind the cursor then is gone back to.
func TestRewind(t *testing.T) {
	r, mem := newRing(t, wide)
	p := groupsend.NewRequests(r, 255)
	for range 99 {
		r.Abort(claim(t, r, 0))
	}
	expect(t, p, "0 false []")
	if p.Rewind(100) {
		t.Error("rewound at slot 99")
	}
	slow := claim(t, r, 0)
	if p.Rewind(100) {
		t.Error("rewound before it had looked at slot 99")
	}
	expect(t, p, "0 false []")
	if !p.Rewind(100) || p.Rewind(100) {
		t.Error("not rewound once, at slot 100")
	}
	send(t, r, 0)
	expect(t, p, "1 false [{0 1 64}]")
	r.Publish(slow, owner) // a hole from before
	expect(t, p, "1 false [{99 1 64}]")
	// A worker that read the cursor at 100, before.
	u := slots.Run{Index: 100, Len: 1, Ticket: r.Word(100).Ticket() + 1}
	shm.Uint64At(mem, 8192+8*100).Store(uint64(slots.MakeWord(slots.Claim, 1, owner, u.Ticket)))
	h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest}
	h.Encode(r.Header(u))
	shm.Uint64At(mem, 4608).Store(100 + 1)
	r.Publish(u, owner)
	expect(t, p, "1 false [{100 1 64}]")
	send(t, r, 0)
	expect(t, p, "1 false [{1 1 64}]")
	// A whole round that is due comes first.
	p.Rescan()
	if p.Rewind(2) {
		t.Error("rewound with a round to go")
	}
}

// Claims do not begin again where nearly all is in use, whoever has it and for however long, but go round the ring.
func TestRewindToBusySlots(t *testing.T) {
	r, _ := newRing(t, wide)
	p := groupsend.NewRequests(r, 255)
	const window = 100
	var leased []slots.Run
	for range window/16 + 1 {
		leased = append(leased, claim(t, r, 0))
	}
	for range window {
		r.Abort(claim(t, r, 0))
	}
	expect(t, p, "0 false []")
	if p.Rewind(window) {
		t.Error("rewound to slots of which more than an eighth is in use")
	}
	r.Abort(leased[0])
	if p.Rewind(window) {
		t.Error("looked again in the same round")
	}
	for p.Position() < uint64(wide.Slots+window) {
		r.Abort(claim(t, r, 0))
		expect(t, p, "0 false []")
	}
	if !p.Rewind(window) {
		t.Error("not rewound in the next round, with enough of them free")
	}
}

// Positions that wrap at 2^64 are no worse than any other nonsense.
func TestCursorAtTheEndOfNumbers(t *testing.T) {
	r, mem := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	p := groupsend.NewRequests(r, 255)
	cursor := shm.Uint64At(mem, 4096)
	cursor.Store(1<<64 - 3) // slot 13
	expect(t, p, "0 false []")
	send(t, r, 300)
	cursor.Store(1<<64 - 1)
	expect(t, p, "1 false [{13 1 364}]")
	cursor.Store(1<<64 - 5)
	expect(t, p, "0 false []")
	cursor.Store(2)
	send(t, r, 0)
	cursor.Store(3)
	expect(t, p, "1 false [{2 1 64}]")
}

// A run that its worker revokes and frees while the planner looks at it is
// nobody's fault.
func TestRevokedWhileLookedAt(t *testing.T) {
	if raceEnabled {
		t.Skip("the planner reads bytes that may be changing and then finds that they may not be used; the race detector knows only the first half")
	}
	r, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 16})
	n := 30_000
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		defer stop.Store(true)
		for i := range n {
			u, err := r.Claim(owner, 2+i%14)
			if err != nil {
				continue // the planner has it
			}
			h := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindOneWay}
			h.Encode(r.Header(u))
			r.Publish(u, owner)
			if r.Revoke(u, owner) {
				r.Abort(u)
			}
		}
	})
	p := groupsend.NewRequests(r, 255)
	c := &freer{t: t, ring: r}
	for !stop.Load() && !t.Failed() {
		p.Rescan()
		p.Plan(c, 100)
	}
	wg.Wait()
}

// freer frees what it is given to send.
type freer struct {
	t    *testing.T
	ring *slots.Ring
}

func (f *freer) Admit(i int, w slots.Word, _ *slots.Header, bad error) groupsend.Verdict {
	if bad != nil {
		f.t.Errorf("slot %d: %v: %v", i, w, bad)
	}
	return sendIf(bad == nil)
}

func (f *freer) Withdrawn(int) {}

func (f *freer) Part(int, int) {}

func (f *freer) Post(g groupsend.Group) { f.ring.Free(g.Index, f.ring.Word(g.Index).Run()) }

// A cursor that somebody moves back after every look costs a round each, and
// does not keep the slots at the end of the ring from being sent.
func TestCursorMovedBackAllTheTime(t *testing.T) {
	g := slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 4}
	r, mem := newRing(t, g)
	p := groupsend.NewRequests(r, 1)
	for range g.Slots {
		send(t, r, 0)
	}
	sent := 0
	for i := range uint64(4 * g.Slots) {
		n, _ := p.Plan(&clerk{}, 1)
		sent += n
		shm.Uint64At(mem, 4096).Store(i % 2 * 1 << 50)
	}
	if sent != g.Slots {
		t.Errorf("sent %d of %d", sent, g.Slots)
	}
}

func ExampleRequests() {
	g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4}
	r, err := slots.NewRing(shm.AlignedBytes(g.SegmentSize()), g)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := groupsend.NewRequests(r, groupsend.MaxCount)
	var runs []slots.Run
	for _, payload := range []string{"a", "b", "c", "d"} {
		u, err := r.Claim(owner, g.RunFor(len(payload)))
		if err != nil {
			fmt.Println(err)
			return
		}
		h := slots.Header{Ticket: u.Ticket, Length: uint32(copy(r.Payload(u), payload)), Run: uint16(u.Len), Kind: slots.KindRequest}
		h.Encode(r.Header(u))
		runs = append(runs, u)
	}
	for _, i := range []int{0, 1, 3} { // the third is not ready yet
		r.Publish(runs[i], owner)
	}
	c := &clerk{}
	fmt.Println(p.Plan(c, 10))
	r.Publish(runs[2], owner)
	fmt.Println(p.Plan(c, 10))
	for _, grp := range c.groups {
		fmt.Printf("%+v\n", grp.Group)
	}
	// Output:
	// 3 false
	// 1 false
	// {Index:0 Count:2 From:0 Bytes:193}
	// {Index:3 Count:1 From:384 Bytes:65}
	// {Index:2 Count:1 From:256 Bytes:65}
}
