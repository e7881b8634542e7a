package client

// HoldSpills keeps a connection from noticing answers that the daemon has moved, until
// the function that it returns is called.
func HoldSpills(c *Conn) (read func()) {
	c.spills.mu.Lock()
	return c.spills.mu.Unlock
}
