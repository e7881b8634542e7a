package shm

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// promised is how many bytes of what CreateOptions.Available has returned are those of segments that are just being made, and were
// not asked of the kernel yet: two that are made at once must not both be told that there is room for one.
var promised struct {
	sync.Mutex
	bytes uint64
}

// promise is the part of one segment in that. A nil promise has none.
type promise struct{ bytes int }

// promiseMemory refuses a segment of size bytes for which there is not enough, and counts any other among those that are being
// made; nil: there is no bound. The caller must end what it returns.
func promiseMemory(size int, available func() (uint64, string)) (*promise, error) {
	if available == nil {
		return nil, nil
	}
	promised.Lock()
	defer promised.Unlock()
	// Pages that others get meanwhile are counted twice until they say so: a chunk each, and never too few.
	n, by := available()
	n -= min(n, promised.bytes)
	if uint64(size) > n {
		return nil, fmt.Errorf("%s leaves %d bytes: %w", by, n, unix.ENOMEM)
	}
	promised.bytes += uint64(size)
	return &promise{size}, nil
}

// less notes that the kernel has given n bytes of it.
func (p *promise) less(n int) {
	if p == nil {
		return
	}
	promised.Lock()
	defer promised.Unlock()
	promised.bytes -= uint64(n)
	p.bytes -= n
}

// end gives up what the kernel has not given.
func (p *promise) end() {
	if p != nil {
		p.less(p.bytes)
	}
}
