package server

import (
	"sync"

	"github.com/rdmad/rdmad/slots"
)

// largeRequest is a request that arrives in parts.
type largeRequest struct {
	mu  sync.Mutex
	buf []byte
	// parts are those that have come or are on their way into buf, got is how many bytes have
	// come, and busy how many parts are on their way.
	parts extents
	got   uint64
	busy  int
	over  bool // the handler has it, or nobody
}

// begin gives the request its memory, the first n bytes of which are there.
func (r *largeRequest) begin(buf []byte, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf, r.got = buf, uint64(n)
	r.parts.add(0, r.got)
}

// reserve checks a part and notes it; arrived or failed must follow if it returns memory, which
// no other part gets.
func (r *largeRequest) reserve(off uint64, n uint32) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || !slots.Inside(off, uint64(n), uint64(len(r.buf))) || !r.parts.add(off, off+uint64(n)) {
		return nil
	}
	r.busy++
	return r.buf[off : off+uint64(n) : off+uint64(n)]
}

// arrived ends what reserve began: the n bytes have come.
func (r *largeRequest) arrived(n uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got += uint64(n)
	r.busy--
}

// failed ends what reserve began: the bytes have not come, or not all of them, and may be sent
// again.
func (r *largeRequest) failed(off uint64, n uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts.drop(off, off+uint64(n))
	r.busy--
}

// complete reports whether all bytes have come and no handler has them.
func (r *largeRequest) complete(size int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.over && r.busy == 0 && r.got == uint64(size)
}

// whole reports whether all bytes have come, whoever has them.
func (r *largeRequest) whole(size int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy == 0 && r.got == uint64(size)
}

// take returns the request if it is complete, once.
func (r *largeRequest) take() ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.busy > 0 || r.got != uint64(len(r.buf)) {
		return nil, false
	}
	r.over = true
	return r.buf, true
}
