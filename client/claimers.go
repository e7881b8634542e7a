package client

import "sync"

// claimers are those who wait for free slots of a lane. One of them at a time sleeps for room, so that a full ring blocks one
// thread of the process and not one per goroutine; the others wait for their turn to do so.
type claimers struct {
	turn chan struct{} // holds one element while somebody sleeps for room

	mu sync.Mutex
	// run is how many slots in a row the one wants that has the turn, or had it last.
	run int
	// longer is closed when somebody gets the turn who wants more than the one before; nil if nobody waits for that.
	longer chan struct{}
}

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
