package agent

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What waits comes out in its order, and a queue that is never empty does not grow.
func TestFifo(t *testing.T) {
	var q fifo
	next := 0
	for i := range 100_000 {
		q.add(Queued{index: i})
		if q.len() < 3 {
			continue
		}
		if r := q.oldest(); r.index != next {
			t.Fatalf("%d came out, want %d", r.index, next)
		}
		q.drop()
		next++
	}
	if q.len() != 2 || cap(q.list) > 16 {
		t.Errorf("%d wait, there is room for %d", q.len(), cap(q.list))
	}
	for i := range 10 {
		q.add(Queued{index: i})
	}
	// The third to fifth of twelve go on.
	look := func(goesOn ...bool) {
		for _, on := range goesOn {
			if _, ok := q.next(); !ok {
				t.Fatal("the look is over")
			}
			if on {
				q.goOn()
			} else {
				q.stay()
			}
		}
	}
	q.begin()
	look(false, false, true, true, true)
	q.stop()
	for k, want := range []int{99_998, 99_999, 3, 4} {
		if got := q.waiting()[k].index; got != want {
			t.Errorf("number %d is %d, want %d", k, got, want)
		}
	}
	if q.len() != 9 {
		t.Errorf("%d wait after three of twelve have gone on", q.len())
	}
	q.begin()
	for range 9 {
		look(true)
	}
	if _, more := q.next(); more || q.len() != 0 || q.first != 0 {
		t.Errorf("%d wait after all have gone on", q.len())
	}
	if q.add(Queued{index: -1}); q.len() != 1 || q.oldest().index != -1 {
		t.Errorf("%d wait after all were dropped and one was added", q.len())
	}
}

// Whatever goes on and stays in looks that are interrupted, and whatever is added meanwhile, the others keep their order, and
// the queue does not grow.
func TestLooksAtAFifo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var q fifo
	var stayed, rest []int // what the look under way has left, and what it has not come to
	added, todo := 0, 0
	for range 200_000 {
		switch n := r.IntN(100); {
		case n < 40 && q.len() < 100:
			q.add(Queued{index: added})
			rest = append(rest, added)
			added++
		case n < 95:
			if !q.looking() {
				q.begin()
				stayed, rest = nil, append(stayed, rest...)
				todo = len(rest)
			}
			one, ok := q.next()
			if ok != (todo > 0) || ok && one.index != rest[0] {
				t.Fatalf("a look with %d to come to has come to %d (%v), want %v", todo, one.index, ok, rest)
			}
			if !ok {
				continue
			}
			if todo--; r.IntN(3) == 0 {
				q.goOn()
			} else {
				q.stay()
				stayed = append(stayed, rest[0])
			}
			rest = rest[1:]
		case n == 95 && todo == 0 && q.len() > 0:
			q.stop()
			q.drop()
			stayed, rest = nil, append(stayed, rest...)[1:]
		case n == 96:
			want := append(slices.Clone(stayed), rest...)
			got := q.waiting()
			if stayed, rest, todo = nil, want, 0; len(got) != len(want) {
				t.Fatalf("%d wait, want %d", len(got), len(want))
			}
			for k := range got {
				if got[k].index != want[k] {
					t.Fatalf("number %d is %d, want %d", k, got[k].index, want[k])
				}
			}
		}
		if q.len() != len(stayed)+len(rest) || cap(q.list) > 1000 {
			t.Fatalf("%d wait, want %d; there is room for %d", q.len(), len(stayed)+len(rest), cap(q.list))
		}
	}
}
