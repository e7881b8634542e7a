package attach

import (
	"context"
	"math/bits"
	"sync"
	"time"
)

const (
	// BlockFrom is from which size on there are blocks: below, a region is more trouble than
	// a copy.
	BlockFrom = 256 << 10
	// poolBytes and poolCount bound the blocks of a session, which are part of what
	// limits.region_bytes and limits.region_count allow it.
	poolBytes = 256 << 20
	poolCount = 64
	// blockIdle is how long a block that nobody uses is kept.
	blockIdle = 10 * time.Second
	// BlockWait bounds the wait for the daemon to make a block, and BlockPause is for how long
	// it is not asked again when it has made none.
	BlockWait  = 10 * time.Second
	BlockPause = time.Second
)

// Pool is a session's regions for large messages, which its daemon reads and writes without
// a copy. They are used again, so that neither their making nor the kernel's clearing of their
// pages is part of every message. Its methods are safe for concurrent use. The zero Pool has
// no blocks.
type Pool struct {
	session *Session // nil: no blocks

	mu sync.Mutex
	// free are the blocks that nobody uses, the one that was used last at the end.
	free []*Block
	// bytes and count are of all blocks.
	bytes, count int
	refused      time.Time // when the daemon made none
	over         bool
	timer        *time.Timer // set while there are free ones, else nil
}

// Block is a region for one message at a time. Whoever uses it holds it: as long as
// somebody does, its bytes are not another message's.
type Block struct {
	*Region
	pool *Pool
	mem  []byte

	users  int       // guarded by pool.mu
	spoilt bool      // guarded by pool.mu
	since  time.Time // when the last user has left; guarded by pool.mu
}

// Mem returns the memory, which is valid as long as the block is held and the session is not
// released.
func (b *Block) Mem() []byte { return b.mem }

// blockSize is the size of a block for n bytes: at most an eighth more, so that messages of
// about the same size can follow each other.
func blockSize(n int) int {
	step := max(1<<(bits.Len(uint(n-1))-4), 4<<10)
	return (n + step - 1) / step * step
}

// Kept returns a block for n bytes, held once, if there is one that nobody uses.
func (m *Pool) Kept(n int) *Block {
	if n < BlockFrom {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	size := blockSize(n)
	for i := len(m.free) - 1; i >= 0; i-- {
		// Much larger ones are left to larger messages.
		if b := m.free[i]; len(b.mem) >= n && len(b.mem) <= 2*size {
			m.free = append(m.free[:i], m.free[i+1:]...)
			b.users = 1
			return b
		}
	}
	return nil
}

// Take returns a block for n bytes, held once, of any content. It returns nil for few
// bytes, and if there is no room for a block: then the message is in memory of its own. It
// may ask the daemon, until ctx ends.
func (m *Pool) Take(ctx context.Context, n int) *Block {
	b := m.Kept(n)
	if b != nil || n < BlockFrom || !m.reserve(blockSize(n)) {
		return b
	}
	asking, cancel := context.WithTimeout(ctx, BlockWait)
	defer cancel()
	r, err := m.session.allocRegion(asking, blockSize(n))
	if err != nil {
		m.mu.Lock()
		m.bytes, m.count = m.bytes-blockSize(n), m.count-1
		if ctx.Err() == nil { // else nobody has refused it
			m.refused = time.Now()
		}
		m.mu.Unlock()
		return nil
	}
	return &Block{Region: r, pool: m, mem: r.Bytes(), users: 1}
}

// reserve counts a new block, for which those make room that nobody uses.
func (m *Pool) reserve(size int) bool {
	m.mu.Lock()
	if m.session == nil || m.over || size > poolBytes || time.Since(m.refused) < BlockPause {
		m.mu.Unlock()
		return false
	}
	n := 0
	for n < len(m.free) && (m.bytes+size > poolBytes || m.count == poolCount) {
		m.bytes, m.count = m.bytes-len(m.free[n].mem), m.count-1
		n++
	}
	drop := m.takeFirst(n)
	ok := m.bytes+size <= poolBytes && m.count < poolCount
	if ok {
		m.bytes, m.count = m.bytes+size, m.count+1
	}
	m.mu.Unlock()
	freeBlocks(drop)
	return ok
}

// takeFirst takes the first n free blocks off the list, with mu held.
func (m *Pool) takeFirst(n int) []*Block {
	first := append([]*Block(nil), m.free[:n]...)
	m.free = m.free[:copy(m.free, m.free[n:])]
	return first
}

// freeBlocks gives blocks back to the daemon. They are counted no more.
func freeBlocks(list []*Block) {
	for _, b := range list {
		_ = b.Free() // fails at the end of the session, which frees it
	}
}

// Hold makes the caller another user of a block that somebody holds. nil is none.
func (b *Block) Hold() {
	if b != nil {
		b.pool.mu.Lock()
		b.users++
		b.pool.mu.Unlock()
	}
}

// Release ends what Hold, Take or Kept began.
func (b *Block) Release() {
	if b == nil {
		return
	}
	m := b.pool
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.users--; b.users > 0 {
		return
	}
	if b.spoilt {
		m.bytes, m.count = m.bytes-len(b.mem), m.count-1
		go freeBlocks([]*Block{b})
		return
	}
	b.since = time.Now()
	m.free = append(m.free, b)
	if m.timer == nil && !m.over {
		m.timer = time.AfterFunc(blockIdle, m.tidy)
	}
}

// Discard is Release for a user behind whose back somebody may go on writing to the block: it
// is nobody's any more when all have left, and the daemon keeps its memory for as long as it
// can be written to.
func (b *Block) Discard() {
	if b == nil {
		return
	}
	b.pool.mu.Lock()
	b.spoilt = true
	b.pool.mu.Unlock()
	b.Release()
}

// tidy gives back what was not used for a while.
func (m *Pool) tidy() {
	m.mu.Lock()
	n := 0
	for n < len(m.free) && time.Since(m.free[n].since) >= blockIdle {
		m.bytes, m.count = m.bytes-len(m.free[n].mem), m.count-1
		n++
	}
	drop := m.takeFirst(n)
	m.timer = nil
	if len(m.free) > 0 && !m.over {
		m.timer = time.AfterFunc(blockIdle-time.Since(m.free[0].since), m.tidy)
	}
	m.mu.Unlock()
	freeBlocks(drop)
}

// drop gives back all blocks that nobody uses, and reports whether there were any.
func (m *Pool) drop() bool {
	m.mu.Lock()
	for _, b := range m.free {
		m.bytes, m.count = m.bytes-len(b.mem), m.count-1
	}
	drop := m.takeFirst(len(m.free))
	m.mu.Unlock()
	freeBlocks(drop)
	return len(drop) > 0
}

// shut makes no more blocks. Those that there are end with the session.
func (m *Pool) shut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
	if m.timer != nil {
		m.timer.Stop()
	}
}
