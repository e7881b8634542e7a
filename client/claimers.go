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
	// behind is how many wait behind a claim of more slots until they look whether there is room for them.
	behind int
}

// lookPace is the time between two looks at a full ring of those behind a claim of more slots, on average: a look passes all slots
// of the ring, and thousands may wait.
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

// ahead reports whether who has the turn wants more than so many slots in a row. If not, the channel is closed when that may have
// changed.
func (c *claimers) ahead(run int) (more bool, longer <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run > run {
		return true, nil
	}
	if c.longer == nil {
		c.longer = make(chan struct{})
	}
	return false, c.longer
}

// lookLater returns for how many nanoseconds the caller, behind a claim of more slots, waits until it looks for room: keptFor, or
// longer with many others. When it does, or waits no more, it calls looks.
func (c *claimers) lookLater() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind++
	return max(keptFor, int64(c.behind)*lookPace)
}

func (c *claimers) looks() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind--
}
