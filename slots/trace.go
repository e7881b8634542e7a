package slots

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/rdmad/rdmad/shm"
)

// A header's trace word says how long what took, while somebody asks for that. The
// requester leaves its stamps there (PackStamps), its daemon puts a mark in their place
// if it follows the request (MakeMark), and the process of the handler leaves its own in
// the answer. Nothing depends on them: whoever writes something else gets a trace that
// makes no sense. See docs/layout.md, "Traces".

// offTrace is where the trace word is in a header.
const offTrace = 32

// MakeMark returns the trace word of the n-th request that a daemon follows under a key,
// of which the lower 31 bits count.
func MakeMark(key, n uint32) uint64 { return 1<<63 | uint64(key&MarkKeyMask)<<32 | uint64(n) }

// MarkKeyMask has the 31 bits that the key of a mark may use.
const MarkKeyMask = 1<<31 - 1

// IsMark reports whether a trace word is a mark. Stamps are none.
func IsMark(trace uint64) bool { return trace>>63 != 0 }

// MarkKey returns the key of a mark.
func MarkKey(mark uint64) uint32 { return uint32(mark>>32) & MarkKeyMask }

// SetTrace writes the trace word of the header in b.
func SetTrace(b []byte, trace uint64) { binary.LittleEndian.PutUint64(b[offTrace:offTrace+8], trace) }

// SetHandled writes into h, the header of an answer, when its handler began and ended, by
// CLOCK_MONOTONIC.
func (h *Header) SetHandled(began, ended int64) { h.Deadline, h.Trace = began, uint64(ended) }

// Handled returns what SetHandled has written into a decoded answer. False: nothing that
// makes sense.
func (h *Header) Handled() (began, ended int64, ok bool) {
	began, ended = h.Deadline, int64(h.Trace)
	return began, ended, began > 0 && ended >= began
}

// How many bits of a trace word say when a request was published, and how many of the rest
// are the exponent of how long that took.
const (
	publishedBits = 40
	mantissaBits  = 18
)

// PackStamps makes a trace word of when a requester began to look for room and when it
// published, both by CLOCK_MONOTONIC. What is between them is kept to within a part in
// 100000.
func PackStamps(began, published int64) uint64 {
	took := uint64(max(0, published-began))
	e := max(0, bits.Len64(took)-mantissaBits)
	if e > 31 {
		e, took = 31, 1<<62
	}
	v := uint64(published)&(1<<publishedBits-1) | min(took>>e, 1<<mantissaBits-1)<<publishedBits | uint64(e)<<(publishedBits+mantissaBits)
	if v == 0 {
		return 1 << publishedBits // a nanosecond: 0 would be no stamps
	}
	return v
}

// UnpackStamps returns what PackStamps has been given, at most 18 minutes before now.
// False: it cannot have been given that.
func UnpackStamps(trace uint64, now int64) (began, published int64, ok bool) {
	if trace == 0 || IsMark(trace) {
		return 0, 0, false
	}
	ago := uint64(now) - trace
	published = now - int64(ago&(1<<publishedBits-1))
	took := trace >> publishedBits & (1<<mantissaBits - 1) << (trace >> (publishedBits + mantissaBits))
	began = published - int64(took)
	return began, published, began > 0
}

// Offsets in a worker segment.
const (
	offTracing = shm.HeaderSize + 0x900
	offTaken   = shm.HeaderSize + 0xc00

	// TakenStamps is how many answers a worker segment has room for to say when they
	// were taken.
	TakenStamps = 64
)

// Tracing reports whether the daemon wants the worker's requests to carry stamps.
func (w *WorkerRings) Tracing() bool { return w.tracing.Load() != 0 }

// SetTracing says so, or not. Only the daemon calls it.
func (w *WorkerRings) SetTracing(on bool) {
	v := uint32(0)
	if on {
		v = 1
	}
	if w.tracing.Load() != v {
		w.tracing.Store(v)
	}
}

// SetTaken notes when the worker took the answer to a marked request.
func (w *WorkerRings) SetTaken(mark uint64, when int64) {
	at, named := w.takenStamp(mark)
	// SYNC POINT (taken): the time is stored before the mark; pairs with Taken.
	at.Store(uint64(when))
	named.Store(mark)
}

// Taken returns when the worker says to have taken the answer to a marked request.
func (w *WorkerRings) Taken(mark uint64) (when int64, ok bool) {
	at, named := w.takenStamp(mark)
	// SYNC POINT (taken): pairs with SetTaken.
	if named.Load() != mark {
		return 0, false
	}
	return int64(at.Load()), true
}

func (w *WorkerRings) takenStamp(mark uint64) (at, named *atomic.Uint64) {
	i := mark % TakenStamps * 2
	return &w.taken[i+1], &w.taken[i]
}
