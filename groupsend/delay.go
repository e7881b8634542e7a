package groupsend

import (
	"math"
	"time"
)

// Waiting is what a lane could send now, as Delay is told.
type Waiting struct {
	// Messages is how many are ready, Bytes how many bytes they have.
	Messages, Bytes int
	// Open is how many others are under way that could bring more: for requests
	// those without an answer, whose callers may come back, for answers the
	// requests that handlers have not finished.
	Open int
	// Deadline is the earliest of those that the messages have; 0 for none.
	Deadline int64
}

const (
	// deadlineLead is by how much more than the delay a group is sent before the
	// first deadline of its messages.
	deadlineLead = int64(time.Millisecond)
	// forgetAfter is how long a lane must have been idle, besides the delay, for
	// what was seen before to say nothing any more.
	forgetAfter = int64(10 * time.Millisecond)
	// longAgo is since when messages wait that were held up by something else.
	longAgo = math.MinInt64
)

// Delay decides for how long one direction of a lane holds back what could become
// a larger group. Times are nanoseconds of one clock, whichever, that is never 0.
// It reads no clock itself. The zero Delay holds nothing back. Not safe for
// concurrent use.
//
// A group is not held when it is full, when it has been held for the delay, when a
// deadline of its messages would come too near, or when nothing is expected. What is
// expected it learns. Requests: as many as there were under way at a time, since each
// caller may come back once it has its answer; when not all of them did within the
// delay, then as many as did. Answers: those of the requests that handlers have, but
// for requests that were there when answers were held in vain.
type Delay struct {
	limit int64
	max   int
	// callers: for requests.
	callers bool
	// since is when the oldest message was first seen, 0 if there is none, and
	// seen the time of the last look.
	since, seen int64
	// ready is how many messages the last look found, and news whether that was more
	// than the one before.
	ready int
	news  bool
	// stale is how many of the open messages are not expected to bring more, and
	// crowd how many callers there are.
	stale, crowd int
}

// NewRequestDelay returns a Delay for requests, which holds groups of less than max
// messages back for at most limit.
func NewRequestDelay(limit time.Duration, max int) Delay {
	return Delay{limit: int64(limit), max: clampCount(max), callers: true}
}

// NewAnswerDelay is NewRequestDelay for answers.
func NewAnswerDelay(limit time.Duration, max int) Delay {
	return Delay{limit: int64(limit), max: clampCount(max)}
}

// SetLimit changes for how long at most groups are held back. What was learnt stays.
func (d *Delay) SetLimit(limit time.Duration) { d.limit = int64(limit) }

// On reports whether anything is ever held back.
func (d *Delay) On() bool { return d.limit > 0 && d.max > 1 }

// Until is a look at what waits. It returns 0 if that is to be sent now, and else the
// time at which it is to be looked at again, if not before because of something new.
func (d *Delay) Until(now int64, w Waiting) int64 {
	d.news, d.ready = w.Messages > d.ready, w.Messages
	if !d.On() || w.Messages == 0 {
		d.since = 0
		return 0
	}
	if d.since == 0 {
		d.since = now
	}
	if now-d.seen > forgetAfter+d.limit {
		d.crowd = 0
	}
	d.seen = now
	d.stale = min(d.stale, w.Open)
	d.crowd = max(d.crowd, w.Messages+w.Open-d.stale)
	if w.Messages >= d.max || w.Bytes >= MaxGroupBytes || d.since == longAgo {
		return 0
	}
	end := d.since + d.limit
	if now >= end {
		d.stale, d.crowd = w.Open, w.Messages
		return 0
	}
	if w.Deadline != 0 {
		end = min(end, max(w.Deadline, 0)-d.limit-deadlineLead) // a worker may have written any deadline
	}
	if now >= end || !d.expects(w) {
		return 0
	}
	return end
}

// expects reports whether more is likely to come.
func (d *Delay) expects(w Waiting) bool {
	if d.callers {
		return w.Messages < d.crowd
	}
	return w.Open > d.stale
}

// News reports whether the last look found more messages than the one before. If so,
// others may be about to come.
func (d *Delay) News() bool { return d.news }

// Sent notes that what was ready has been posted, but for some if more is true, which
// have waited long enough.
func (d *Delay) Sent(more bool) {
	d.since, d.ready = 0, 0
	if more {
		d.Late()
	}
}

// Late makes the next look send what there is: it could not be sent when it was ready.
func (d *Delay) Late() { d.since = longAgo }
