package slots_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Waiters for free slots are woken once for as many as the most modest of them has
// asked for, and not for each.
func TestFreedWakesAfterEnough(t *testing.T) {
	r, mem := newRing(t, small)
	bell := r.WaitFree(10)
	if r.WaitFree(20) != bell || !r.Waiters() {
		t.Error("a second announcement")
	}
	for range 9 {
		r.Freed(1)
	}
	if r.FreeBell().Load() != bell || !r.Waiters() {
		t.Error("woken before enough was free")
	}
	r.Freed(1)
	if r.FreeBell().Load() != bell+1 || r.Waiters() {
		t.Error("not woken when enough was free")
	}
	r.Freed(100)
	if r.FreeBell().Load() != bell+1 {
		t.Error("woken without a waiter")
	}
	bell = r.WaitFree(10)
	r.WakeFree()
	if r.FreeBell().Load() != bell+1 || r.Waiters() {
		t.Error("not woken at once")
	}
	// A count from nowhere costs no more than the wake-up.
	bell = r.WaitFree(10)
	shm.Uint32At(mem, 4480).Store(1<<32 - 1)
	r.Freed(4096)
	r.WaitFree(10)
	r.Freed(10)
	if r.FreeBell().Load() != bell+1 {
		t.Error("a later announcement does not count")
	}
}

// However many free and wait at once, the bell does not stay still for more than
// what was asked for.
func TestFreedByMany(t *testing.T) {
	r, _ := newRing(t, small)
	const freers, each, want = 4, 20_000, 8
	before := r.WaitFree(want)
	var wg sync.WaitGroup
	for range freers {
		wg.Go(func() {
			for range each {
				r.Freed(1)
				r.WaitFree(want)
			}
		})
	}
	wg.Wait()
	// Each addition counts, but for one that meets the wake-up of another.
	if woken := int(r.FreeBell().Load() - before); woken < freers*each/want/2 || woken > freers*each {
		t.Errorf("%d wake-ups for %d freed slots", woken, freers*each)
	}
}

func TestShare(t *testing.T) {
	s := slots.Share(0)
	for i := range 10_000 {
		next := s.Next(i * 7)
		if next == s || next.Slots() != i*7 {
			t.Fatalf("%#x after %#x", next, s)
		}
		s = next
	}
	if s = slots.Share(0xfff00007).Next(0); s != 0 {
		t.Errorf("%#x after the last", s)
	}
}

func TestHolders(t *testing.T) {
	r, _ := newRing(t, small)
	var held [slots.MaxOwner + 1]uint32
	claims := map[int][]int{3: {1, 4, 2}, 4095: {5}, 7: {1}}
	for owner, runs := range claims {
		for _, k := range runs {
			if _, err := r.Claim(owner, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	if sum := r.Holders(&held); sum != 13 || held[3] != 7 || held[4095] != 5 || held[7] != 1 || held[0] != 0 {
		t.Errorf("%d held: %d, %d, %d", sum, held[3], held[4095], held[7])
	}
	for owner, want := range map[int]int{3: 7, 4095: 5, 7: 1, 8: 0} {
		if n := r.Held(owner); n != want {
			t.Errorf("%d holds %d, want %d", owner, n, want)
		}
	}
	r.Sweep(only(3), func(int) bool { return false })
	if n := r.Held(3); n != 0 {
		t.Errorf("holds %d after its death", n)
	}
}

// Who knows its runs counts what it holds of them as a look at the whole ring would.
func TestHeldRuns(t *testing.T) {
	r, _ := newRing(t, small)
	var mine []slots.Run
	claim := func(owner, k int) slots.Run {
		t.Helper()
		u, err := r.Claim(owner, k)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, k := range []int{1, 4, 2} {
		mine = append(mine, claim(3, k))
		claim(9, 1)
	}
	held, n := r.HeldRuns(3, []slots.Run{{Index: 7}})
	if !slices.Equal(held, mine) || n != 7 {
		t.Fatalf("%v, %d slots; claimed %v", held, n, mine)
	}
	// One is freed, and another has its slots now; of another only slots behind the first are free.
	r.Free(mine[1].Index, 4)
	other := claim(9, 4)
	for other.Index != mine[1].Index {
		other = claim(9, 4)
	}
	held, n = r.StillHeld(3, held)
	if !slices.Equal(held, []slots.Run{mine[0], mine[2]}) || n != 3 || n != r.Held(3) {
		t.Errorf("%v, %d slots", held, n)
	}
	// The same slot again is another run.
	r.Free(mine[0].Index, 1)
	r.Free(mine[2].Index, 2)
	again := claim(3, 1)
	for again.Index != mine[0].Index {
		again = claim(3, 1)
	}
	if held, n = r.StillHeld(3, []slots.Run{mine[0], again}); len(held) != 1 || held[0] != again || n != 1 {
		t.Errorf("%v, %d slots", held, n)
	}
}

func BenchmarkHeld(b *testing.B) {
	b.ReportAllocs()
	r, _ := newRing(b, small)
	for b.Loop() {
		r.Held(9)
	}
}

func BenchmarkHolders(b *testing.B) {
	b.ReportAllocs()
	r, _ := newRing(b, small)
	var held [slots.MaxOwner + 1]uint32
	for b.Loop() {
		r.Holders(&held)
	}
}

// A daemon limits what each worker may hold while many want slots.
func ExampleRing_SetShare() {
	g := slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 8}
	r, err := slots.NewRing(shm.AlignedBytes(g.SegmentSize()), g)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		if _, err := r.Claim(7, 8); err != nil {
			fmt.Println(err)
		}
	}
	var held [slots.MaxOwner + 1]uint32
	fmt.Println("held:", r.Holders(&held), "of them by worker 7:", held[7])
	r.SetShare(r.Share().Next(20))
	fmt.Println("worker 7 may claim:", r.Held(7) < r.Share().Slots())
	// Output:
	// held: 24 of them by worker 7: 24
	// worker 7 may claim: false
}

// A worker that finds the ring full is woken when enough slots have been freed.
func ExampleRing_Freed() {
	g := slots.Geometry{SlotSize: 128, Slots: 64, MaxRun: 8}
	r, err := slots.NewRing(shm.AlignedBytes(g.SegmentSize()), g)
	if err != nil {
		fmt.Println(err)
		return
	}
	u, err := r.Claim(7, 8)
	if err != nil {
		fmt.Println(err)
		return
	}
	bell := r.WaitFree(g.WakeAfter())
	fmt.Println("waits for", g.WakeAfter(), "slots:", r.Waiters())
	r.Abort(u)
	r.Freed(u.Len)
	fmt.Println("woken:", r.FreeBell().Load() != bell)
	// Output:
	// waits for 8 slots: true
	// woken: true
}
