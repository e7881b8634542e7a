package tcp

import (
	"errors"
	"slices"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
)

// cq implements fabric.CQ. It holds no completions: they stay in the queues of
// their endpoints until Poll has room for them, so it cannot overflow.
type cq struct {
	dev       *Device
	poller    *poller.Poller
	endpoints []*Endpoint // active ones
	// first and last are the list of endpoints that want a turn.
	first, last *Endpoint
	waiting     int
	closed      bool
	latest      *Endpoint // something arrived on it last; nil before the first
	moved       int       // bytes that Poll has read and written
	enough      int       // after how many of them it gives no second turn: bytesOfPoll
	plain       []byte    // what an endpoint is about to encrypt; nil before the first
}

// CreateCQ implements fabric.Device. The depth must be positive and is otherwise
// unused. A CQ with a poller learns of arrivals only when the agent calls the
// poller's Wait; without one, every Poll tries every endpoint.
func (d *Device) CreateCQ(depth int, p *poller.Poller) (fabric.CQ, error) {
	if depth < 1 {
		return nil, fabric.ErrInvalid
	}
	return &cq{dev: d, poller: p, enough: bytesOfPoll}, nil
}

// push puts e at the end of the list of endpoints that want a turn. During its
// turn that is left to the turn's result.
func (q *cq) push(e *Endpoint) {
	if e.queued || q.closed {
		return
	}
	e.queued = true
	if q.last == nil {
		q.first = e
	} else {
		q.last.next = e
	}
	q.last = e
	q.waiting++
}

func (q *cq) pop() *Endpoint {
	e := q.first
	q.first = e.next
	if q.first == nil {
		q.last = nil
	}
	e.next = nil
	q.waiting--
	return e
}

// drop forgets an endpoint that has nothing left to report.
func (q *cq) drop(e *Endpoint) {
	if q.latest == e {
		q.latest = nil
	}
	if i := slices.Index(q.endpoints, e); i >= 0 {
		q.endpoints = slices.Delete(q.endpoints, i, i+1)
	}
}

// What has arrived together is handed over together, and wakes those who wait for it together: they are as many
// for the next group. But there is no end to what arrives of large transfers, and whoever polls has other things to do.
const (
	// turnsOfPoll is how many turns one Poll gives an endpoint that goes on wanting one.
	turnsOfPoll = 4
	// bytesOfPoll is after how many bytes Poll gives no second turn.
	bytesOfPoll = 256 << 10
)

// Poll implements fabric.CQ. Every endpoint that wants one gets a turn, in
// rotation, as long as c has room, and those that want more get a few.
func (q *cq) Poll(c []fabric.Completion) (int, error) {
	if q.closed {
		return 0, fabric.ErrClosed
	}
	if q.poller == nil {
		for _, e := range q.endpoints {
			e.readable, e.stuck = true, false
			q.push(e)
		}
	}
	n := 0
	q.moved = 0
	for round := 0; round < turnsOfPoll && q.moved < q.enough && q.waiting > 0; round++ {
		for turns := q.waiting; turns > 0 && n < len(c); turns-- {
			e := q.pop()
			took, again := e.turn(c[n:])
			n += took
			e.queued = false
			if again && e.link != linkGone {
				q.push(e)
			}
		}
	}
	return n, nil
}

// Arm implements fabric.CQ. A CQ without a poller cannot be slept on.
func (q *cq) Arm() (bool, error) {
	if q.closed {
		return false, fabric.ErrClosed
	}
	if q.poller == nil {
		return false, fabric.ErrNotSupported
	}
	return q.first == nil, nil
}

// Close implements fabric.CQ. It also ends the connections of endpoints that are
// still active on it.
func (q *cq) Close() error {
	if q.closed {
		return nil
	}
	q.closed = true
	var err error
	for _, e := range q.endpoints {
		e.link = linkGone
		err = errors.Join(err, e.hangUp())
	}
	q.endpoints, q.first, q.last = nil, nil, nil
	return err
}
