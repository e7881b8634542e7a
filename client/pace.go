package client

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// pace decides how much of its large messages a connection has under way at a time. Whoever makes
// a small call waits for what daemons and processors have before it, so there is little of it while
// others, in this process or another, use the connection's lanes, and ample of it otherwise.
type pace struct {
	// own is how many slots large messages have claimed, or are about to.
	own atomic.Int64

	mu sync.Mutex
	// most is the largest number of slots so far that cursors had moved by and large messages had
	// not claimed.
	most int64
	// seen is when it grew the last times, by one each, by CLOCK_MONOTONIC; oldest is where the first
	// of them is.
	seen   [few]int64
	oldest int
}

const (
	// few slots that others claim in the time of quiet do not count: a call whose answer turns out
	// to be large is one of these until it is known. quiet is longer than a process pauses that
	// calls all the time.
	few   = 4
	quiet = 100 * time.Millisecond
	// farBehind is how many slots the cursors may be behind what was seen of them before. Large
	// messages that are about to claim are few; more means that a ring is a new one.
	farBehind = 1 << 16
)

// alone reports whether the lanes of c have been left to large messages for a while. What it reads
// of them is a hint: a process that forges it makes large messages of this one slower, or its own
// small ones. The caller holds the gate.
func (p *pace) alone(c *Conn) bool {
	lanes := c.allLanes()
	now := shm.Nanotime()
	p.mu.Lock()
	defer p.mu.Unlock()
	var moved int64
	for _, l := range lanes {
		moved += int64(l.ring.Claimed())
	}
	// Read after the cursors: what large messages have moved them by is in it.
	moved -= p.own.Load()
	if p.seen[p.oldest] == 0 || moved < p.most-farBehind {
		p.most = moved - few // the first look: nothing is known
	}
	for n := min(moved-p.most, few); n > 0; n-- {
		p.seen[p.oldest] = now
		p.oldest = (p.oldest + 1) % few
	}
	p.most = max(p.most, moved)
	return now-p.seen[p.oldest] > int64(quiet)
}
