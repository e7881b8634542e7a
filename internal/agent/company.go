package agent

import "time"

// company is what an agent knows of those who wait for something small: messages that are no
// part of a large one, and operations of at most a chunk. While there are any, large operations
// move a little at a time and have little under way, because whatever is small waits behind
// it; nobody waits behind them otherwise. It belongs to the agent.
type company struct {
	// met is how many small ones there were, and looked how many of them look has seen.
	met, looked uint64
	// seen is when the last of them were, and oldest where the first of these is.
	seen   [few]int64
	oldest int
}

const (
	// few small ones within quiet do not count: a large transfer has some itself. quiet is longer
	// than a process pauses that calls all the time.
	few   = 4
	quiet = int64(100 * time.Millisecond)
)

// look notes when the small ones came that were met since the last time: now.
func (c *company) look(now int64) {
	for n := min(c.met-c.looked, few); n > 0; n-- {
		c.seen[c.oldest] = now
		c.oldest = (c.oldest + 1) % few
	}
	c.looked = c.met
}

// alone reports whether large operations have had the agent for themselves for a while.
func (a *Agent) alone() bool {
	c := &a.company
	return a.now-c.seen[c.oldest] > quiet
}
