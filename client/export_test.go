package client

import "time"

// HoldSpills keeps a connection from noticing answers that the daemon has moved, until
// the function that it returns is called.
func HoldSpills(c *Conn) (read func()) {
	c.spills.mu.Lock()
	return c.spills.mu.Unlock
}

// SleepForRoomUntilWoken keeps c from looking for room unless it is woken. No goroutine may
// use c at the same time.
func SleepForRoomUntilWoken(c *Conn) { c.wait.room = time.Hour }

// WaitsToBeTold reports whether c waits for the daemon to say that it may hold more.
func WaitsToBeTold(c *Conn) bool { return c.wait.told.Load() }

// Pace returns whether large messages of c may take all the room there is, and when others were
// seen last.
func Pace(c *Conn) (alone bool, seen int64) {
	if !c.gate.enter() {
		return false, 0
	}
	defer c.gate.leave()
	alone = c.pace.alone(c)
	c.pace.mu.Lock()
	defer c.pace.mu.Unlock()
	return alone, c.pace.seen[(c.pace.oldest+few-1)%few]
}

// Got returns how many bytes of messages the stream has got.
func Got(s *Stream) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in.Got()
}

// Unsent reports whether a part of the stream could not be sent.
func Unsent(s *Stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsent != nil
}

// Claiming reports whether somebody waits for room in a lane of c.
func Claiming(c *Conn) bool {
	for i := range c.lanes {
		if l := c.lanes[i].Load(); l != nil && l.claimers.any() {
			return true
		}
	}
	return false
}
