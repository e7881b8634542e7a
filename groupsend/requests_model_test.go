package groupsend_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// world is a ring, a planner and what must have happened.
type world struct {
	t    *rapid.T
	g    slots.Geometry
	mem  []byte
	ring *slots.Ring
	plan *groupsend.Requests
	max  int
	runs map[int]*message // by first slot
	// tainted says that a hostile cursor may have led the planner astray.
	tainted bool
	// admitted is the journal; posts counts the groups of one Plan.
	admitted map[int]slots.Word
	limit    int    // of writes
	posts    int    // writes so far
	parts    []span // of the next group
	sent     int
	refused  int // messages that the clerk did not want
}

type message struct {
	run    slots.Run
	state  slots.State
	length int
	// what happens when the planner shows it to the clerk
	refuse, revoke, spoiled bool
}

const owner = 3

func newWorld(t *rapid.T) *world {
	w := &world{t: t, runs: map[int]*message{}, admitted: map[int]slots.Word{}}
	w.g = slots.Geometry{SlotSize: 128, Slots: rapid.SampledFrom([]int{16, 19, 70}).Draw(t, "slots"), MaxRun: 5}
	if rapid.Bool().Draw(t, "big slots") {
		w.g.SlotSize = 64 << 10 // groups end at MaxGroupBytes
	}
	w.max = rapid.SampledFrom([]int{1, 2, 3, 255}).Draw(t, "max")
	w.mem = shm.AlignedBytes(w.g.SegmentSize())
	var err error
	if w.ring, err = slots.NewRing(w.mem, w.g); err != nil {
		t.Fatal(err)
	}
	w.plan = groupsend.NewRequests(w.ring, w.max)
	return w
}

func (w *world) claim(t *rapid.T) {
	k := rapid.IntRange(1, w.g.MaxRun).Draw(t, "run")
	if u, err := w.ring.Claim(owner, k); err == nil {
		w.runs[u.Index] = &message{run: u, state: slots.Claim}
	}
}

// claimLate claims free slots behind the cursor, as a worker does that was
// stopped between its look at the cursor and its first swap.
func (w *world) claimLate(t *rapid.T) {
	cursor := w.ring.Cursor()
	if cursor == 0 || w.tainted {
		return
	}
	back := rapid.Uint64Range(1, min(cursor, uint64(2*w.g.Slots))).Draw(t, "back")
	i := int((cursor - back) % uint64(w.g.Slots))
	if w.ring.Word(i).State() != slots.Free {
		return
	}
	u := slots.Run{Index: i, Len: 1, Ticket: w.ring.Word(i).Ticket() + 1}
	shm.Uint64At(w.mem, 8192+8*i).Store(uint64(slots.MakeWord(slots.Claim, 1, owner, u.Ticket)))
	if late := shm.Uint64At(w.mem, 4608); late.Load() == 0 || int64(late.Load()-(cursor-back+1)) > 0 {
		late.Store(cursor - back + 1)
	}
	w.runs[i] = &message{run: u, state: slots.Claim}
}

func (w *world) pick(t *rapid.T, s slots.State) *message {
	var some []*message
	for i := range w.g.Slots {
		if m := w.runs[i]; m != nil && m.state == s {
			some = append(some, m)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return rapid.SampledFrom(some).Draw(t, "message")
}

func (w *world) publish(t *rapid.T) {
	m := w.pick(t, slots.Claim)
	if m == nil {
		return
	}
	m.length = rapid.IntRange(0, w.g.Capacity(m.run.Len)).Draw(t, "length")
	h := slots.Header{Ticket: m.run.Ticket, Length: uint32(m.length), Run: uint16(m.run.Len), Kind: slots.KindRequest}
	switch rapid.IntRange(0, 9).Draw(t, "fate") {
	case 0:
		m.refuse = true
	case 1:
		m.revoke = true
	case 2:
		m.spoiled = true
		rapid.SampledFrom([]func(){
			func() { h.Ticket++ },
			func() { h.Length = uint32(w.g.Capacity(m.run.Len)) + 1 },
			func() { h.Run++ },
			func() { h.Kind = slots.KindAnswer },
			func() { h.Flags = slots.FlagError },
		}).Draw(t, "fault")()
	}
	h.Encode(w.ring.Header(m.run))
	if !w.ring.Publish(m.run, owner) {
		t.Fatalf("publish of %+v", m)
	}
	m.state = slots.Pub
}

func (w *world) drop(m *message) {
	w.ring.Free(m.run.Index, m.run.Len)
	delete(w.runs, m.run.Index)
}

// Admit, Withdrawn and Post make world the planner's clerk.
func (w *world) Admit(i int, word slots.Word, h *slots.Header, bad error) groupsend.Verdict {
	m := w.runs[i]
	if m == nil || m.state != slots.Pub || word.Ticket() != m.run.Ticket || word.Run() != m.run.Len {
		w.t.Fatalf("shown %v at %d, which is %+v", word, i, m)
	}
	if (bad != nil) != m.spoiled {
		w.t.Fatalf("slot %d: %v, spoiled %v", i, bad, m.spoiled)
	}
	if m.spoiled || m.refuse {
		w.refused++
		w.drop(m)
		return groupsend.Refuse
	}
	if int(h.Length) != m.length {
		w.t.Fatalf("slot %d: header %+v", i, h)
	}
	w.admitted[i] = word
	if m.revoke {
		if !w.ring.Revoke(m.run, owner) {
			w.t.Fatalf("revoke of %+v", m)
		}
		m.state, m.revoke = slots.Claim, false
	}
	return groupsend.Send
}

func (w *world) Withdrawn(i int) {
	if m := w.runs[i]; m == nil || m.state != slots.Claim {
		w.t.Fatalf("withdrawn %d, which is %+v", i, m)
	}
	delete(w.admitted, i)
}

func (w *world) Part(from, bytes int) {
	w.posts++
	w.parts = append(w.parts, span{from, bytes})
}

func (w *world) Post(last groupsend.Group) {
	w.posts++
	g := posted{last, append(w.parts, span{last.From, last.Bytes})}
	w.parts = nil
	if g.Count < 1 || g.Count > w.max {
		w.t.Fatalf("group %+v, at most %d messages", g, w.max)
	}
	next := g.Index
	var want plan
	for n := range g.Count {
		m := w.runs[next]
		if m == nil || m.state != slots.Pub || w.ring.Word(next).State() != slots.Taken {
			w.t.Fatalf("group %+v: slot %d is %+v", g, next, m)
		}
		if _, ok := w.admitted[next]; !ok {
			w.t.Fatalf("group %+v: slot %d was not admitted", g, next)
		}
		if n > 0 && want.full() {
			w.t.Fatalf("group %+v goes on after %v", g, want)
		}
		m.state = slots.Taken
		w.sent++
		want.add(next*w.g.SlotSize, next*w.g.SlotSize+64+m.length)
		next += m.run.Len
	}
	if err := want.check(g); err != nil {
		w.t.Fatal(err)
	}
	// It is as long as it can be.
	if m := w.runs[next]; g.Count < w.max && !want.full() && w.posts+w.refused < w.limit && m != nil && m.state == slots.Pub && next < w.g.Slots {
		w.t.Fatalf("group %+v ends before the published slot %d", g, next)
	}
}

func (w *world) published() (n int) {
	for _, m := range w.runs {
		if m.state == slots.Pub {
			n++
		}
	}
	return n
}

func (w *world) planSome(t *rapid.T) {
	w.t = t
	limit := rapid.SampledFrom([]int{-1, 0, 1, 1, 2, 1000}).Draw(t, "limit")
	w.posts, w.sent, w.refused, w.limit = 0, 0, 0, limit
	if w.tainted {
		w.plan.Rescan()
		w.tainted = false
	}
	n, more := w.plan.Plan(w, limit)
	if n != w.sent {
		t.Fatalf("Plan says %d messages, %d were posted", n, w.sent)
	}
	if w.posts > max(limit, 0) {
		t.Fatalf("%d groups, limit %d", w.posts, limit)
	}
	if left := w.published(); !more && left > 0 {
		t.Fatalf("%d published messages are left and Plan says that it is through", left)
	}
	if more && w.posts+w.refused < limit {
		t.Fatalf("stopped after %d groups and %d refused messages, limit %d", w.posts, w.refused, limit)
	}
	// Each write may end with one of them.
	if w.refused > max(limit, 0) {
		t.Fatalf("%d messages were refused, limit %d", w.refused, limit)
	}
}

func TestRequestsMatchTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"claim":      w.claim,
			"claim late": w.claimLate,
			"publish":    w.publish,
			"publish 2":  w.publish,
			"late and published": func(t *rapid.T) {
				w.claimLate(t)
				w.publish(t)
			},
			"plan": w.planSome,
			"abort": func(t *rapid.T) {
				if m := w.pick(t, slots.Claim); m != nil {
					w.drop(m)
				}
			},
			"answer and consume": func(t *rapid.T) {
				if m := w.pick(t, slots.Taken); m != nil {
					if !w.ring.Answer(m.run.Index, w.ring.Word(m.run.Index)) {
						t.Fatalf("answer of %+v", m)
					}
					delete(w.admitted, m.run.Index)
					w.drop(m)
				}
			},
			"hostile cursor": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
					shm.Uint64At(w.mem, 4096).Store(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 50), rapid.Uint64Range(1<<64-50, 1<<64-1)).Draw(t, "cursor"))
					w.tainted = true
				}
			},
			"hostile late": func(t *rapid.T) {
				// Bounded extra work, and never a message that is lost.
				if rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
					shm.Uint64At(w.mem, 4608).Store(rapid.Uint64().Draw(t, "late"))
					w.tainted = true
				}
			},
			"rescan": func(*rapid.T) { w.plan.Rescan() },
			"rewind": func(t *rapid.T) { w.plan.Rewind(rapid.IntRange(0, w.g.Slots).Draw(t, "window")) },
		})
		// In the end a bounded number of rounds sends the rest.
		w.t = t
		w.plan.Rescan()
		for range 2 * w.g.Slots {
			w.posts, w.limit = 0, 1
			if _, more := w.plan.Plan(w, 1); !more {
				break
			}
		}
		if n := w.published(); n > 0 {
			t.Fatalf("%d messages never went out", n)
		}
	})
}
