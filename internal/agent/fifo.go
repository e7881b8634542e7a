package agent

import "slices"

// fifo are requests that wait, oldest first. The zero fifo is empty.
//
// A look goes through those that wait when it begins, and lets some of them go on and the others stay where they are. It can be
// interrupted for others to be added. While it is, those that stay are the first ones in the list, and where those were that
// have gone on is a gap, so that no step of it moves more than one.
type fifo struct {
	list  []Queued
	first int // those before it have gone on
	// todo is how many the look under way has still to come to; 0 if there is none. stayed are those that stay so far, and gap
	// those that have gone on.
	todo, stayed, gap int
}

func (q *fifo) len() int { return len(q.list) - q.first - q.gap }

// add puts a request at the end. It uses the room of those that have gone on before it takes
// more.
func (q *fifo) add(r Queued) {
	if q.first+q.gap > len(q.list)/2 && len(q.list) == cap(q.list) {
		n := copy(q.list, q.list[q.first:q.first+q.stayed])
		n += copy(q.list[n:], q.list[q.first+q.stayed+q.gap:])
		q.list, q.first, q.gap = q.list[:n], 0, 0
	}
	q.list = append(q.list, r)
}

// oldest returns the one that has waited longest; there must be one.
func (q *fifo) oldest() Queued { return q.list[q.first] }

// drop takes the oldest away.
func (q *fifo) drop() { q.first++ }

// begin begins a look.
func (q *fifo) begin() {
	q.stop()
	q.todo = q.len()
}

// looking reports whether a look is under way.
func (q *fifo) looking() bool { return q.todo > 0 }

// next returns the one that the look has come to. False: it has come to all, and is over.
func (q *fifo) next() (Queued, bool) {
	if q.todo == 0 {
		q.stop()
		return Queued{}, false
	}
	return q.list[q.first+q.stayed+q.gap], true
}

// goOn lets the one go on that the look has come to, and stay lets it stay.
func (q *fifo) goOn() {
	q.todo--
	q.gap++
}

func (q *fifo) stay() {
	if at := q.first + q.stayed; q.gap > 0 {
		q.list[at] = q.list[at+q.gap]
	}
	q.todo--
	q.stayed++
}

// stop ends the look under way, if any, wherever it is. Of those before and behind the gap it moves the fewer: much may wait
// while few go on.
func (q *fifo) stop() {
	before, behind := q.list[q.first:q.first+q.stayed], q.list[q.first+q.stayed+q.gap:]
	switch {
	case q.gap == 0:
	case len(before) <= len(behind):
		copy(q.list[q.first+q.gap:], before)
		q.first += q.gap
	default:
		q.list = q.list[:q.first+len(before)+copy(q.list[q.first+len(before):], behind)]
	}
	q.todo, q.stayed, q.gap = 0, 0, 0
	if q.len() == 0 {
		q.clear()
	}
}

// waiting returns all, oldest first, until the next change. A look that is under way ends.
func (q *fifo) waiting() []Queued {
	q.stop()
	return q.list[q.first:]
}

// set makes others the ones that wait, or some of those that waiting has returned.
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
