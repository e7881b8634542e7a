package server

import "github.com/rdmad/rdmad/internal/attach"

// kept returns a block for n bytes if there is one that nobody uses.
func (x *exchanges) kept(n int) *attach.Block { return x.server.session.Pool.Kept(n) }

// take returns a block for a large message of n bytes, or nil: then it is in memory of its own.
func (x *exchanges) take(n int) *attach.Block {
	// What is in memory of its own goes through stages, which must not find that blocks have
	// all that the daemon gives this process.
	if n < attach.BlockFrom || x.server.ops.staging.ready() != nil {
		return nil
	}
	return x.server.session.Pool.Take(x.server.base, n)
}

// blockRef refers to n bytes of a block.
func blockRef(b *attach.Block, off uint64, n int) RegionRef {
	return RegionRef{region: b.Region, off: off, n: uint64(n)}
}

// overflowRoom returns memory for an answer of n bytes that does not fit the slots. What the
// handler was given for an answer before stays as it is: that may be what it copies from.
func (c *Call) overflowRoom(n int) []byte {
	if c.inline {
		return make([]byte, n) // to ask the daemon for a block would be to wait for this thread
	}
	if b := c.overflowIn; b != nil && n <= len(b.Mem()) {
		return b.Mem()[:n:n]
	}
	b := c.server.exchanges.take(n)
	if c.overflowIn = b; b == nil {
		return make([]byte, n)
	}
	c.blocks = append(c.blocks, b)
	return b.Mem()[:n:n]
}

// releaseBlocks ends the call's use of all blocks.
func (c *Call) releaseBlocks() {
	for i, b := range c.blocks {
		b.Release()
		c.blocks[i] = nil
	}
	c.blocks, c.overflowIn = c.blocks[:0], nil
}
