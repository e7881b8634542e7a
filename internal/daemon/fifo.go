package daemon

// fifo are requests that wait, oldest first. The zero fifo is empty.
type fifo struct {
	list  []queued
	first int // those before it have gone on
}

func (q *fifo) len() int { return len(q.list) - q.first }

// add puts a request at the end. It uses the room of those that have gone on before it takes
// more.
func (q *fifo) add(r queued) {
	if q.first > len(q.list)/2 && len(q.list) == cap(q.list) {
		q.list = q.list[:copy(q.list, q.list[q.first:])]
		q.first = 0
	}
	q.list = append(q.list, r)
}

// oldest returns the one that has waited longest; there must be one.
func (q *fifo) oldest() queued { return q.list[q.first] }

// drop takes the oldest away.
func (q *fifo) drop() { q.first++ }

// clear drops all.
func (q *fifo) clear() { q.list, q.first = q.list[:0], 0 }
