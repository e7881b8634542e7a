package daemon

import "testing"

// What waits comes out in its order, and a queue that is never empty does not grow.
func TestFifo(t *testing.T) {
	var q fifo
	next := 0
	for i := range 100_000 {
		q.add(queued{index: i})
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
	q.clear()
	if q.add(queued{index: -1}); q.len() != 1 || q.oldest().index != -1 {
		t.Errorf("%d wait after all were dropped and one was added", q.len())
	}
}
