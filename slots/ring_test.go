package slots_test

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// ringModel is a ring and what it must look like.
type ringModel struct {
	g    slots.Geometry
	r    *slots.Ring
	mem  []byte
	runs []*modelRun
	// seen are the tickets at the last look.
	seen []uint64
}

type modelRun struct {
	slots.Run
	owner   int
	state   slots.State
	orphan  bool // the owner died while the daemon had the run
	partial bool // a claim or a free that stopped half way: Len slots of want
	want    int
}

func newRingModel(t *rapid.T) *ringModel {
	g := slots.Geometry{SlotSize: 128, Slots: rapid.SampledFrom([]int{16, 17, 24, 64}).Draw(t, "slots"), MaxRun: rapid.IntRange(1, 9).Draw(t, "max run")}
	m := &ringModel{g: g, mem: shm.AlignedBytes(g.SegmentSize()), seen: make([]uint64, g.Slots)}
	start := rapid.SampledFrom([]uint64{0, 1<<40 - 3, 1<<39 - 2}).Draw(t, "first ticket")
	setTickets(m.mem, g, start)
	for i := range m.seen {
		m.seen[i] = start
	}
	shm.Uint64At(m.mem, 4096).Store(rapid.SampledFrom([]uint64{0, 5, 1 << 40}).Draw(t, "cursor"))
	var err error
	if m.r, err = slots.NewRing(m.mem, g); err != nil {
		t.Fatal(err)
	}
	return m
}

// fits reports whether k free slots in a row exist.
func (m *ringModel) fits(k int) bool {
	used := make([]bool, m.g.Slots)
	for _, u := range m.runs {
		for j := range u.Len {
			used[u.Index+j] = true
		}
	}
	row := 0
	for _, b := range used {
		if row++; b {
			row = 0
		}
		if row >= k {
			return true
		}
	}
	return false
}

func (m *ringModel) claim(t *rapid.T) {
	k, owner := rapid.IntRange(1, m.g.MaxRun).Draw(t, "k"), rapid.IntRange(1, 3).Draw(t, "owner")
	fits := m.fits(k)
	before := append([]uint64(nil), m.seen...)
	u, err := m.r.Claim(owner, k)
	if !fits {
		if !errors.Is(err, slots.ErrFull) {
			t.Fatalf("no room for %d: got %v, %v", k, u, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("room for %d: %v", k, err)
	}
	if u.Len != k || u.Ticket != m.r.Word(u.Index).Ticket() || !slots.TicketNewer(u.Ticket, before[u.Index]) {
		t.Fatalf("claimed %+v", u)
	}
	for i := u.Index; i < u.Index+k; i++ {
		if !slots.TicketNewer(m.r.Word(i).Ticket(), before[i]) {
			t.Fatalf("claimed %+v, slot %d: %v, ticket %d before", u, i, m.r.Word(i), before[i])
		}
	}
	m.runs = append(m.runs, &modelRun{Run: u, owner: owner, state: slots.Claim})
}

// partialClaim plays a claimer that stops after j of k swaps.
func (m *ringModel) partialClaim(t *rapid.T) {
	k := rapid.IntRange(1, m.g.MaxRun).Draw(t, "k")
	i := rapid.IntRange(0, m.g.Slots-k).Draw(t, "at")
	owner := rapid.IntRange(1, 3).Draw(t, "owner")
	stop := rapid.IntRange(0, k).Draw(t, "stop")
	j := 0
	for ; j < stop && m.r.Word(i+j).State() == slots.Free; j++ {
		w := slots.MakeWord(slots.Follow, j, owner, m.r.Word(i+j).Ticket()+1)
		if j == 0 {
			w = slots.MakeWord(slots.Claim, k, owner, m.r.Word(i).Ticket()+1)
		}
		setWord(m.mem, i+j, w)
	}
	if j > 0 {
		m.runs = append(m.runs, &modelRun{Run: slots.Run{Index: i, Len: j, Ticket: m.r.Word(i).Ticket()}, owner: owner, state: slots.Claim, partial: true, want: k})
	}
}

// pick draws a run for which ok holds, or nil.
func (m *ringModel) pick(t *rapid.T, ok func(*modelRun) bool) *modelRun {
	var some []*modelRun
	for _, u := range m.runs {
		if ok(u) {
			some = append(some, u)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return rapid.SampledFrom(some).Draw(t, "run")
}

func (m *ringModel) drop(u *modelRun) {
	for i := range m.runs {
		if m.runs[i] == u {
			m.runs = append(m.runs[:i], m.runs[i+1:]...)
			return
		}
	}
}

func in(states ...slots.State) func(*modelRun) bool {
	return func(u *modelRun) bool {
		for _, s := range states {
			if u.state == s && !u.partial && !u.orphan {
				return true
			}
		}
		return false
	}
}

// swap tries one change of state on any whole run: it must work exactly in the
// state from, and never for another owner, ticket or length.
func (m *ringModel) swap(t *rapid.T, from, to slots.State, f func(u slots.Run, owner int) bool) {
	u := m.pick(t, func(u *modelRun) bool { return !u.partial && !u.orphan })
	if u == nil {
		return
	}
	wrong := u.Run
	wrong.Ticket++
	longer := u.Run
	longer.Len++
	if f(u.Run, u.owner+1) || f(wrong, u.owner) || f(longer, u.owner) {
		t.Fatalf("changed somebody else's run %+v", u)
	}
	if ok := f(u.Run, u.owner); ok != (u.state == from) {
		t.Fatalf("%v to %v on %+v: %v", from, to, u, ok)
	} else if ok {
		u.state = to
	}
}

// die kills an owner and sweeps its slots; the journal covers what was taken.
func (m *ringModel) die(t *rapid.T) {
	owner := rapid.IntRange(1, 3).Draw(t, "owner")
	covered := map[int]bool{}
	want := 0
	var left []*modelRun
	for _, u := range m.runs {
		switch {
		case u.owner == owner && u.state == slots.Taken:
			covered[u.Index] = true
			u.orphan = true
			left = append(left, u)
		case u.owner == owner:
			want += u.Len
		default:
			left = append(left, u)
		}
	}
	if got := m.r.Sweep(only(owner), func(i int) bool { return covered[i] }); got != want {
		t.Fatalf("sweep of %d freed %d slots, want %d", owner, got, want)
	}
	if got := m.r.Sweep(only(owner), func(i int) bool { return covered[i] }); got != 0 {
		t.Fatalf("a second sweep freed %d", got)
	}
	m.runs = left
}

// check compares every word with the model.
func (m *ringModel) check(t *rapid.T) {
	used := make([]bool, m.g.Slots)
	for _, u := range m.runs {
		if u.Index < 0 || u.Index+u.Len > m.g.Slots {
			t.Fatalf("run %+v leaves the ring", u)
		}
		for j := range u.Len {
			i := u.Index + j
			if used[i] {
				t.Fatalf("slot %d is in two runs", i)
			}
			used[i] = true
			w := m.r.Word(i)
			if w.Owner() != u.owner {
				t.Fatalf("slot %d of %+v: %v", i, u, w)
			}
			length := u.Len
			if u.partial {
				length = u.want
			}
			if j == 0 && (w.State() != u.state || w.Run() != length || w.Ticket() != u.Ticket) || j > 0 && (w.State() != slots.Follow || w.Run() != j) {
				t.Fatalf("slot %d of %+v: %v", i, u, w)
			}
		}
		err := m.r.CheckRun(u.Index, m.r.Word(u.Index))
		if bad := u.partial && u.Len < u.want; (err != nil) != bad {
			t.Fatalf("CheckRun of %+v: %v", u, err)
		}
	}
	for i := range used {
		w := m.r.Word(i)
		if !used[i] && uint64(w)&0xffffff != 0 {
			t.Fatalf("slot %d leaked: %v", i, w)
		}
		if slots.TicketNewer(m.seen[i], w.Ticket()) {
			t.Fatalf("slot %d: ticket %d after %d", i, w.Ticket(), m.seen[i])
		}
		m.seen[i] = w.Ticket()
	}
}

func TestRingMatchesTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newRingModel(t)
		whole := func(u *modelRun) bool { return !u.partial && !u.orphan }
		t.Repeat(map[string]func(*rapid.T){
			"claim":         m.claim,
			"claim more":    m.claim,
			"partial claim": m.partialClaim,
			"publish":       func(t *rapid.T) { m.swap(t, slots.Claim, slots.Pub, m.r.Publish) },
			"revoke":        func(t *rapid.T) { m.swap(t, slots.Pub, slots.Claim, m.r.Revoke) },
			"take": func(t *rapid.T) {
				m.swap(t, slots.Pub, slots.Taken, func(u slots.Run, owner int) bool {
					return m.r.Take(u.Index, slots.MakeWord(slots.Pub, u.Len, owner, u.Ticket))
				})
			},
			"answer": func(t *rapid.T) {
				m.swap(t, slots.Taken, slots.Ans, func(u slots.Run, owner int) bool {
					return m.r.Answer(u.Index, slots.MakeWord(slots.Pub, u.Len, owner, u.Ticket))
				})
			},
			"answered": func(t *rapid.T) {
				if u := m.pick(t, whole); u != nil && m.r.Answered(u.Run, u.owner) != (u.state == slots.Ans) {
					t.Fatalf("Answered of %+v is wrong", u)
				}
			},
			"acquire": func(t *rapid.T) { m.swap(t, slots.Ans, slots.Read, m.r.Acquire) },
			"move": func(t *rapid.T) {
				m.swap(t, slots.Ans, slots.Moved, func(u slots.Run, owner int) bool {
					return m.r.Move(u.Index, slots.MakeWord(slots.Ans, u.Len, owner, u.Ticket)) || m.r.Move(u.Index, m.r.Word(u.Index).With(slots.Taken))
				})
			},
			"abort or consume": func(t *rapid.T) {
				if u := m.pick(t, in(slots.Claim, slots.Read, slots.Moved)); u != nil {
					if u.state == slots.Claim {
						m.r.Abort(u.Run)
					} else {
						m.r.Consume(u.Run)
					}
					m.drop(u)
				}
			},
			"roll back": func(t *rapid.T) {
				if u := m.pick(t, func(u *modelRun) bool { return u.partial }); u != nil {
					m.r.Free(u.Index, u.Len)
					m.drop(u)
				}
			},
			"free half": func(t *rapid.T) {
				// An owner that is in the middle of Consume: last slots first.
				if u := m.pick(t, in(slots.Read)); u != nil && u.Len > 1 {
					n := rapid.IntRange(1, u.Len-1).Draw(t, "n")
					m.r.Free(u.Index+u.Len-n, n)
					u.partial, u.want = true, u.Len
					u.Len -= n
				}
			},
			"die": m.die,
			"orphan answered": func(t *rapid.T) {
				if u := m.pick(t, func(u *modelRun) bool { return u.orphan }); u != nil {
					m.r.Free(u.Index, u.Len)
					m.drop(u)
				}
			},
			"": m.check,
		})
		for _, u := range m.runs {
			m.r.Free(u.Index, u.Len)
		}
		m.runs = nil
		m.check(t)
		for range m.g.Slots / m.g.MaxRun {
			m.claimAll(t)
		}
	})
}

// claimAll checks that an empty ring holds one run of every length.
func (m *ringModel) claimAll(t *rapid.T) {
	for k := 1; k <= m.g.MaxRun; k++ {
		u, err := m.r.Claim(1, k)
		if err != nil {
			t.Fatalf("run of %d in an empty ring: %v", k, err)
		}
		m.r.Abort(u)
	}
}

func TestClaimRefuses(t *testing.T) {
	r, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	for _, c := range [][2]int{{0, 1}, {4096, 1}, {-1, 1}, {1, 0}, {1, 5}, {1, -1}} {
		if _, err := r.Claim(c[0], c[1]); !errors.Is(err, slots.ErrRun) {
			t.Errorf("owner %d, run %d: %v", c[0], c[1], err)
		}
	}
	for _, s := range []slots.LaneState{slots.LaneDraining, slots.LaneClosed} {
		r.SetState(s)
		if _, err := r.Claim(1, 1); !errors.Is(err, slots.ErrClosed) {
			t.Errorf("state %d: %v", s, err)
		}
	}
}

func TestTicketsWrap(t *testing.T) {
	g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 16}
	r, mem := newRing(t, g)
	setTickets(mem, g, 1<<40-3)
	for n := range 6 {
		u, err := r.Claim(5, 16)
		if err != nil {
			t.Fatal(err)
		}
		if want := (uint64(1<<40-2) + uint64(n)) & (1<<40 - 1); u.Ticket != want {
			t.Fatalf("ticket %d, want %d", u.Ticket, want)
		}
		if !r.Publish(u, 5) || !r.Take(u.Index, r.Word(u.Index)) || !r.Answer(u.Index, r.Word(u.Index)) || !r.Answered(u, 5) {
			t.Fatalf("ticket %d does not travel: %v", u.Ticket, r.Word(u.Index))
		}
		r.Consume(u)
	}
	if freeSlots(r) != 16 {
		t.Error("slots leaked")
	}
}

func ExampleRing() {
	g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4}
	r, err := slots.NewRing(shm.AlignedBytes(g.SegmentSize()), g)
	if err != nil {
		fmt.Println(err)
		return
	}
	const me = 7 // attach id

	// Worker: claim, write, publish.
	payload := "what is the answer?"
	u, err := r.Claim(me, g.RunFor(len(payload)))
	if err != nil {
		fmt.Println(err)
		return
	}
	h := slots.Header{Ticket: u.Ticket, Length: uint32(copy(r.Payload(u), payload)), Run: uint16(u.Len), Kind: slots.KindRequest}
	h.Encode(r.Header(u))
	fmt.Println(r.Publish(u, me))

	// Daemon: take, and answer in place.
	w := r.Word(u.Index)
	fmt.Println(r.CheckRun(u.Index, w), r.Take(u.Index, w))
	copy(r.PayloadAt(u.Index, u.Len), "42")
	fmt.Println(r.Answer(u.Index, w))

	// Worker: read and free.
	fmt.Println(r.Answered(u, me), string(r.Payload(u)[:2]))
	r.Consume(u)
	r.Freed(u.Len)
	fmt.Println(r.Word(u.Index))
	// Output:
	// true
	// <nil> true
	// true
	// true 42
	// FREE{run 0 owner 0 ticket 1}
}

// only is what Sweep takes for the death of one owner.
func only(dead int) func(int) bool { return func(owner int) bool { return owner == dead } }
