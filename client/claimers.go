package client

import (
	"sync"
	"time"
)

// claimers are those who wait for free slots of a lane. One of them at a time sleeps for room, so that a full ring blocks one
// thread of the process and not one per goroutine; the others wait for their turn to do so.
type claimers struct {
	turn chan struct{} // holds one element while somebody sleeps for room

	mu sync.Mutex
	// run is how many slots in a row the one wants that has the turn, or had it last.
	run int
	// longer is closed when somebody gets the turn who wants more than the one before; nil if nobody waits for that.
	longer chan struct{}
	// look is when, by shm.Nanotime, the last one behind a claim of more slots looks whether there is room for it.
	look int64
}

// lookPace is the least time between two looks at a full ring of those behind a claim of more slots: a look passes all slots of the
// ring, and thousands may wait.
const lookPace = int64(time.Millisecond)

// any reports whether somebody waits.
func (c *claimers) any() bool { return len(c.turn) > 0 }

// wants notes how many slots in a row the caller wants, who has the turn now.
func (c *claimers) wants(run int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run > c.run && c.longer != nil {
		close(c.longer)
		c.longer = nil
	}
	c.run = run
}

// next gives the turn, which the caller has, to the next one.
func (c *claimers) next() { <-c.turn }

// ahead returns when the caller is to look for so many slots in a row, which is keptFor from now or, with many others, later, if
// who has the turn wants more than that. If not, that is 0, and the channel is closed when it may have changed.
func (c *claimers) ahead(run int, now int64) (look int64, longer <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run > run {
		c.look = max(now+keptFor, c.look+lookPace)
		return c.look, nil
	}
	if c.longer == nil {
		c.longer = make(chan struct{})
	}
	return 0, c.longer
}
