package client

import (
	"sync"

	"github.com/rdmad/rdmad/slots"
)

// PinLane makes all requests of this process with the same key, whatever their method,
// use one lane of each class to a node. With one lane per peer, which is the default
// of the daemons, it changes nothing. A request waits for its lane while that is full,
// and has it opened again while it is closed, although others could be used. It
// spreads load by key; it orders nothing, see Ordered.
func PinLane(key uint64) CallOption {
	return func(o *callOptions) { o.pinned, o.pin = true, mix(key) }
}

// Ordered makes the requests of this process to one method with the same key start in
// the order in which they were sent, one after the other, in one process of the
// service: the next one starts when the handler of the one before has returned.
// Requests with other keys, or without one, run meanwhile. A request was sent before
// another if the function that sent it had returned when that of the other was
// called; Commit is what sends a Request.
//
// All of them use one lane, of the class with the largest slots, unless Within says how
// large they get; a request that fits no run there is refused with ErrTooLarge instead of
// being sent in parts, and streams are refused with ErrInvalid. They cannot be taken back: Cancel
// does nothing, and what a context ends is still executed unless it has a deadline
// that has passed. About 1 in 65535 pairs of keys wait for each other, so a handler
// must not wait for another ordered request that its own process serves.
//
// See docs/semantics.md for what holds when a process or a lane is lost.
func Ordered(key uint64) CallOption {
	return func(o *callOptions) { o.ordered, o.key = true, key }
}

// Within promises that no request, counting 32 bytes for each reference to a region,
// and no answer has more than n bytes: a larger one is refused with ErrTooLarge, and so
// is one with more room for its answer; see AnswerSize. All requests then use the same
// class. Ordered requests that are ordered among each other must have the same n.
func Within(n int) CallOption { return func(o *callOptions) { o.limited, o.within = true, max(n, 0) } }

// settle completes the options of a method.
func (o *callOptions) settle(id int) {
	if o.limited {
		o.direct = true
		o.unsplit()
	}
	if o.ordered {
		o.pinned, o.pin = true, mix(o.key)
		// Other processes share the lane: their keys are others.
		o.order = uint16(mix(o.key^uint64(id)<<48)%65535) + 1
	}
}

// mix spreads the bits of a key: the finalizer of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// chains is how many rows of ordered requests a lane has. The keys of a row share a
// lock, and are sent in order although they need not be.
const chains = 64

// chain is a row of ordered requests.
type chain struct {
	mu sync.Mutex
	// last is the one that was published last; its Len is 0 if there is none.
	last slots.Run
}

// publish writes the header of the draft, whose payload is written, and hands the
// request to the daemon; see lane.publish.
func (d *draft) publish() error {
	if d.h.Order == 0 {
		d.stamp()
		d.h.Encode(d.l.ring.Header(d.u))
		return d.l.publish(d.u, d.silent)
	}
	c := &d.l.chains[d.h.Order%chains]
	c.mu.Lock()
	before := c.last
	if before.Len == 0 {
		before = d.u
	}
	d.h.After, d.h.AfterTicket = uint16(before.Index), uint32(before.Ticket)
	d.stamp()
	d.h.Encode(d.l.ring.Header(d.u))
	// SYNC POINT (order): the one before was published under the same lock; pairs
	// with Requests.mustWait of the agent.
	err := d.l.publish(d.u, true)
	if err == nil {
		c.last = d.u
	}
	c.mu.Unlock()
	if err == nil && !d.silent {
		d.l.announce()
	}
	return err
}
