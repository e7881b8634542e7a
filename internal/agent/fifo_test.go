package agent

import "testing"

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
	q.leave(2, 5)
	for k, want := range []int{99_998, 99_999, 3, 4} {
		if got := q.waiting()[k].index; got != want {
			t.Errorf("number %d is %d, want %d", k, got, want)
		}
	}
	if q.len() != 9 {
		t.Errorf("%d wait after three of twelve have gone on", q.len())
	}
	if q.leave(0, 9); q.len() != 0 || q.first != 0 {
		t.Errorf("%d wait after all have gone on", q.len())
	}
	if q.add(Queued{index: -1}); q.len() != 1 || q.oldest().index != -1 {
		t.Errorf("%d wait after all were dropped and one was added", q.len())
	}
}
