package agent

import "slices"

// fifo are requests that wait, oldest first. The zero fifo is empty.
type fifo struct {
	list  []Queued
	first int // those before it have gone on
}

func (q *fifo) len() int { return len(q.list) - q.first }

// add puts a request at the end. It uses the room of those that have gone on before it takes
// more.
func (q *fifo) add(r Queued) {
	if q.first > len(q.list)/2 && len(q.list) == cap(q.list) {
		q.list = q.list[:copy(q.list, q.list[q.first:])]
		q.first = 0
	}
	q.list = append(q.list, r)
}

// oldest returns the one that has waited longest; there must be one.
func (q *fifo) oldest() Queued { return q.list[q.first] }

// drop takes the oldest away.
func (q *fifo) drop() { q.first++ }

// waiting returns all, oldest first, until the next change.
func (q *fifo) waiting() []Queued { return q.list[q.first:] }

// leave lets those of the waiting go on that are before number end, but for the first stay ones.
// What comes after is not moved: much may wait while few go on.
func (q *fifo) leave(stay, end int) {
	w := q.waiting()
	copy(w[end-stay:], w[:stay])
	if q.first += end - stay; q.len() == 0 {
		q.clear()
	}
}

// set makes others the ones that wait, or some of those.
func (q *fifo) set(list []Queued) { q.list, q.first = append(q.list[:0], list...), 0 }

// minSweep is with how many requests it is worth looking for those that wait no more.
const minSweep = 64

// sweep drops those that were answered otherwise, and returns with how many it is worth doing again: callers may give
// up for as long as no process has room, and what they have given up must not pile up.
func (q *fifo) sweep() (again int) {
	q.set(slices.DeleteFunc(q.waiting(), func(r Queued) bool { return !r.waits() }))
	return max(minSweep, 2*q.len())
}

// clear drops all.
func (q *fifo) clear() { q.list, q.first = q.list[:0], 0 }
