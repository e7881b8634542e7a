package slots_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// A daemon that takes over in the middle goes on where the last one was: the worker sees
// every hint that was shown, and the daemon sees none that it has not seen but up to 63
// old ones.
func TestResumeRings(t *testing.T) {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	worker := slots.NewWorkerRings(mem)
	daemon := slots.NewWorkerRings(mem)
	hint := func(n int) slots.Hint { return slots.MakeHint(1, n%1000, uint64(n)) }
	down, up, seen := 0, 0, 0
	for round := range 200 {
		for range 90 {
			if !daemon.Down.Push(hint(down)) {
				t.Fatalf("round %d: the ring is full", round)
			}
			down++
			if !worker.Up.Push(hint(up)) {
				t.Fatalf("round %d: the ring up is full", round)
			}
			up++
		}
		daemon.Down.Stage(hint(12345)) // lost with the daemon
		for range 45 {                 // the rest waits for the next daemon
			if h, ok := daemon.Up.Pop(); !ok || h != hint(seen) {
				t.Fatalf("round %d: %v, %v", round, h, ok)
			}
			seen++
		}
		daemon = slots.ResumeWorkerRings(mem)
		if n := daemon.Down.Backlog(); n > 90+63 {
			t.Fatalf("round %d: a backlog of %d", round, n)
		}
		first, ok := daemon.Up.Pop()
		again := 0
		for ; ok && first != hint(seen) && again < 64; again++ {
			first, ok = daemon.Up.Pop()
		}
		if !ok || again > 63 {
			t.Fatalf("round %d: %d old hints, then %v, %v", round, again, first, ok)
		}
		for seen++; seen < up; seen++ {
			if h, ok := daemon.Up.Pop(); !ok || h != hint(seen) {
				t.Fatalf("round %d: %v, %v", round, h, ok)
			}
		}
		for n := down - 90; n < down; n++ {
			if h, ok := worker.Down.Pop(); !ok || h != hint(n) {
				t.Fatalf("round %d: the worker got %v, %v", round, h, ok)
			}
		}
	}
}

func TestResumeOps(t *testing.T) {
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	worker, daemon := slots.NewOpRing(mem), slots.NewOpRing(mem)
	for n := range 10 {
		if at := worker.Submitted(); at != uint64(n) || !worker.Submit(&slots.Op{Kind: slots.OpRead, Cookie: uint64(n)}) {
			t.Fatalf("operation %d at %d", n, at)
		}
	}
	var o slots.Op
	for range 6 {
		daemon.Next(&o)
	}
	daemon.Complete(&slots.Result{Cookie: 0})
	daemon.Complete(&slots.Result{Cookie: 1})
	daemon.Wake()
	daemon.Complete(&slots.Result{Cookie: 2}) // not shown: lost
	daemon = slots.ResumeOpRing(mem)
	if daemon.Taken() != 6 {
		t.Errorf("%d taken", daemon.Taken())
	}
	for n := 6; n < 10; n++ {
		if ok, more := daemon.Next(&o); !ok || !more || o.Cookie != uint64(n) {
			t.Fatalf("operation %d: %+v, %v, %v", n, o, ok, more)
		}
		daemon.Complete(&slots.Result{Cookie: o.Cookie})
	}
	daemon.Wake()
	var got []uint64
	for r := (slots.Result{}); worker.Take(&r); {
		got = append(got, r.Cookie)
	}
	if want := []uint64{0, 1, 6, 7, 8, 9}; len(got) != len(want) || got[0] != 0 || got[2] != 6 || got[5] != 9 {
		t.Errorf("results %v, want %v", got, want)
	}
}

// Whatever a worker has written to its segment, taking it over neither panics nor loops,
// nor does what comes after.
func TestResumeGarbage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := shm.AlignedBytes(slots.WorkerSegmentSize)
		position := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, 1, 255, 256, 257, 4095, 4096, 4097, 1<<64 - 1, 1<<64 - 4096}))
		// The words of the three rings: tails, heads.
		for _, off := range []int{4096, 4096 + 128, 5120, 5120 + 128, 73728, 73728 + 128, 73728 + 256, 73728 + 384} {
			shm.Uint64At(mem, off).Store(position.Draw(t, "position"))
		}
		w, q := slots.ResumeWorkerRings(mem), slots.ResumeOpRing(mem)
		popped := 0
		for ; popped <= slots.HintEntries; popped++ {
			if _, ok := w.Up.Pop(); !ok {
				break
			}
		}
		if popped > slots.HintEntries {
			t.Fatal("more hints than the ring has")
		}
		pushed := 0
		for ; pushed <= slots.HintEntries && w.Down.Push(1); pushed++ {
		}
		if pushed > slots.HintEntries || w.Down.Backlog() > slots.HintEntries {
			t.Fatalf("%d hints into the ring, a backlog of %d", pushed, w.Down.Backlog())
		}
		var o slots.Op
		taken := 0
		for more := true; more && taken <= slots.OpEntries; taken++ {
			_, more = q.Next(&o)
		}
		if taken > slots.OpEntries+1 {
			t.Fatal("more operations than the ring has")
		}
		for n := 0; q.Complete(&slots.Result{}); n++ {
			if n > slots.OpEntries {
				t.Fatal("more results than the ring has")
			}
		}
		q.Wake()
	})
}
