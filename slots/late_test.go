package slots_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// A sender that follows the cursor and takes late into account sees every claim
// that succeeded, whatever the claimers' interleaving. They pause until all is
// seen, so that no later claim brings the sender round to what it missed.
func TestSenderThatFollowsTheCursorMissesNoClaim(t *testing.T) { followTheCursor(t, false) }

// Nor does one that sends the claimers back to the first slot whenever it can.
func TestSenderThatRewindsMissesNoClaim(t *testing.T) {
	if rewound := followTheCursor(t, true); rewound == 0 {
		t.Error("it never could")
	}
}

func followTheCursor(t *testing.T, rewind bool) (rewound int) {
	g := slots.Geometry{SlotSize: 128, Slots: 32, MaxRun: 2}
	r, _ := newRing(t, g)
	rounds, claimers, each := 30_000, 3, 4
	if testing.Short() || raceEnabled {
		rounds = 2000
	}
	var wg sync.WaitGroup
	var seen atomic.Int64
	var stop atomic.Bool
	for c := range claimers {
		wg.Go(func() {
			for n := range rounds {
				for i := range each {
					u, err := r.Claim(c+1, 1+i%2)
					for ; err != nil && !stop.Load(); u, err = r.Claim(c+1, 1+i%2) {
						runtime.Gosched()
					}
					if err == nil {
						r.Publish(u, c+1)
					}
				}
				for seen.Load() < int64((n+1)*claimers*each) {
					if stop.Load() {
						return
					}
					runtime.Gosched()
				}
			}
		})
	}
	// The sender frees on the spot what it finds.
	pos := uint64(0)
	claims := map[int]bool{} // seen claimed and not yet published
	take := func(i int) {
		w := r.Word(i)
		if w.State() == slots.Claim {
			claims[i] = true
			return
		}
		delete(claims, i)
		if w.State() == slots.Pub && r.Take(i, w) {
			r.Free(i, w.Run())
			seen.Add(1)
		}
	}
	// However slow the machine, some message comes within that time.
	const hang = 2 * time.Minute
	before, since := seen.Load(), time.Now()
	for all := int64(rounds * claimers * each); seen.Load() < all; runtime.Gosched() {
		if now := seen.Load(); now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > hang {
			t.Errorf("saw %d of %d messages", seen.Load(), all)
			dump(t, r)
			break
		}
		late, ok := r.TakeLate()
		cursor := r.Cursor()
		if ok && late < pos {
			pos = late
		}
		if cursor-pos > uint64(g.Slots) {
			pos = cursor - uint64(g.Slots)
		}
		for i := range claims {
			take(i)
		}
		for ; pos < cursor; pos++ {
			take(int(pos % uint64(g.Slots)))
		}
		if rewind {
			if next, ok := r.Rewind(pos); ok {
				pos = next
				rewound++
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	return rewound
}

// The cursor goes to the next position of slot 0 from where the sender says that it is, and from nowhere else.
func TestRewind(t *testing.T) {
	for _, n := range []int{16, 19} {
		r, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: n, MaxRun: 4})
		for round := range uint64(3) {
			begin := round * uint64(n)
			for i := range 5 {
				u, err := r.Claim(1, 1)
				if err != nil || u.Index != i {
					t.Fatalf("round %d: claimed %+v, %v, want slot %d", round, u, err, i)
				}
				r.Abort(u)
			}
			for _, pos := range []uint64{begin, begin + 4, begin + 6, begin + 5 + uint64(n)} {
				if _, ok := r.Rewind(pos); ok {
					t.Errorf("rewound from %d, the cursor is at %d", pos, begin+5)
				}
			}
			if next, ok := r.Rewind(begin + 5); !ok || next != begin+uint64(n) || r.Cursor() != next {
				t.Errorf("rewound to %d, %v, cursor %d, want %d", next, ok, r.Cursor(), begin+uint64(n))
			}
			if got := r.Claimed(); got != 5*(round+1) {
				t.Errorf("%d slots claimed, want %d", got, 5*(round+1))
			}
		}
		if pos, ok := r.TakeLate(); ok {
			t.Errorf("late %d: nobody was", pos)
		}
	}
}

// What the sender skips is not taken for claims, not even for a moment.
func TestClaimedWhileRewinding(t *testing.T) {
	r, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 32, MaxRun: 1})
	const claims = 3_000_000
	var made atomic.Int64
	var all sync.WaitGroup
	var stop atomic.Bool
	all.Go(func() {
		for !stop.Load() {
			r.Rewind(r.Cursor())
		}
	})
	all.Go(func() {
		defer stop.Store(true)
		for range claims {
			made.Add(1)
			u, err := r.Claim(1, 1)
			if err != nil {
				t.Error(err)
				return
			}
			r.Abort(u)
		}
	})
	for !stop.Load() {
		if got, most := int64(r.Claimed()), made.Load(); got > most {
			t.Errorf("%d slots claimed, with %d claims", got, most)
			break
		}
	}
	all.Wait()
	if r.Claimed() == 0 {
		t.Error("no slot claimed")
	}
}

// A claim that started at an old cursor says so.
func TestLateClaim(t *testing.T) {
	g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4}
	r, mem := newRing(t, g)
	if _, ok := r.TakeLate(); ok {
		t.Error("late in a new ring")
	}
	for range 3 {
		if _, err := r.Claim(1, 2); err != nil {
			t.Fatal(err)
		}
	}
	if pos, ok := r.TakeLate(); ok {
		t.Errorf("late %d without a race", pos)
	}
	if r.Cursor() != 6 {
		t.Errorf("cursor %d", r.Cursor())
	}
	// Nonsense in the word is replaced or kept, and taken once.
	for _, v := range []uint64{1, 1 << 63, 1<<64 - 1} {
		shm.Uint64At(mem, 4608).Store(v)
		if pos, ok := r.TakeLate(); !ok || pos != v-1 {
			t.Errorf("took %d, %v", pos, ok)
		}
		if _, ok := r.TakeLate(); ok {
			t.Error("took it twice")
		}
	}
}

// No bytes that another process can write make a call panic, hang, or reach out
// of the ring.
func TestHostileWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := slots.Geometry{SlotSize: 128, Slots: rapid.SampledFrom([]int{16, 21}).Draw(t, "slots"), MaxRun: 5}
		mem := shm.AlignedBytes(g.SegmentSize())
		r, err := slots.NewRing(mem, g)
		if err != nil {
			t.Fatal(err)
		}
		word := rapid.Custom(func(t *rapid.T) slots.Word {
			return slots.MakeWord(slots.State(rapid.IntRange(0, 7).Draw(t, "state")),
				rapid.SampledFrom([]int{0, 1, 2, 5, 6, 511}).Draw(t, "run"), rapid.IntRange(0, 3).Draw(t, "owner"), rapid.Uint64().Draw(t, "ticket"))
		})
		for i := range g.Slots {
			setWord(mem, i, word.Draw(t, "word"))
			shm.Uint64At(mem, 8192+8*g.Slots+8*i).Store(uint64(word.Draw(t, "answer word")))
		}
		shm.Uint64At(mem, 4096).Store(rapid.Uint64().Draw(t, "cursor"))
		shm.Uint64At(mem, 4608).Store(rapid.Uint64().Draw(t, "late"))
		for k := 1; k <= g.MaxRun; k++ {
			if u, err := r.Claim(1, k); err == nil && (u.Index < 0 || u.Index+u.Len > g.Slots || u.Len != k) {
				t.Fatalf("claimed %+v", u)
			}
		}
		for i := range g.Slots {
			w := r.Word(i)
			if r.CheckRun(i, w) == nil {
				if k := w.Run(); k < 1 || k > g.MaxRun || i+k > g.Slots {
					t.Fatalf("accepted %v at %d", w, i)
				}
				_ = r.PayloadAt(i, w.Run())
			}
			if u, ok := r.Pick(i, 2); ok {
				_ = r.Payload(u)
				r.Finish(u, 2)
			}
			_ = fmt.Sprint(w, r.AnswerWord(i))
		}
		for owner := range 4 {
			r.Sweep(only(owner), func(i int) bool { return i%3 == 0 })
			r.Sweep(only(owner), func(int) bool { return false })
		}
		if n := freeSlots(r); n != g.Slots {
			t.Fatalf("%d of %d slots free after every owner died", n, g.Slots)
		}
	})
}
