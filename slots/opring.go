package slots

import (
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// Offsets in a worker segment, behind the hint rings; see docs/layout.md, "Ring
// of operations".
const (
	offOpControl = offEntries + 2*8*HintEntries
	offOps       = offOpControl + 0x1000
	offResults   = offOps + OpSize*OpEntries

	opTail       = 0x000
	opHead       = 0x080
	resultTail   = 0x100
	resultHead   = 0x180
	opAsleep     = 0x200
	opBell       = 0x280
	opSegmentEnd = offResults + ResultSize*OpEntries

	// OpEntries is the capacity of each half of the ring of operations.
	OpEntries = 256
)

// OpRing is the ring through which a service worker gives operations to its
// daemon and gets their results: two single-producer, single-consumer halves, and
// a bell for the worker. The daemon's bell is the domain's: MarkWorker. A worker
// has at most OpEntries operations under way, counting those whose result it has
// not taken; then neither half is ever full.
//
// Like HintRing each side keeps its own positions in private memory, and takes a
// position of the other side that cannot be for a full or an empty ring.
type OpRing struct {
	tail, head       *atomic.Uint64
	doneTail, doneHd *atomic.Uint64
	asleep, bell     *atomic.Uint32
	ops, results     []byte
	// pos is this side's position among the operations, donePos among the
	// results.
	pos, donePos uint64
}

// NewOpRing returns a view of the ring of operations in a worker segment: mem is
// the whole mapping of WorkerSegmentSize bytes. Each process makes its own view
// and uses one side of it.
func NewOpRing(mem []byte) *OpRing {
	return &OpRing{
		tail:     shm.Uint64At(mem, offOpControl+opTail),
		head:     shm.Uint64At(mem, offOpControl+opHead),
		doneTail: shm.Uint64At(mem, offOpControl+resultTail),
		doneHd:   shm.Uint64At(mem, offOpControl+resultHead),
		asleep:   shm.Uint32At(mem, offOpControl+opAsleep),
		bell:     shm.Uint32At(mem, offOpControl+opBell),
		ops:      mem[offOps:offResults:offResults],
		results:  mem[offResults:opSegmentEnd:opSegmentEnd],
	}
}

// ResumeOpRing is NewOpRing for a daemon that takes over a segment in use. Operations
// that the daemon before it has taken, and results that it has not shown, are lost:
// Taken says which. What the worker has written to the words since can make a half look
// full or empty, no more.
func ResumeOpRing(mem []byte) *OpRing {
	q := NewOpRing(mem)
	q.pos, q.donePos = q.head.Load(), q.doneTail.Load()
	return q
}

// Taken returns how many operations the daemon has taken. Only the daemon calls it.
func (q *OpRing) Taken() uint64 { return q.pos }

// Submitted returns how many operations the worker has submitted. Like Submit it is
// the worker's.
func (q *OpRing) Submitted() uint64 { return q.pos }

// Submit gives an operation to the daemon, who must then be told with MarkWorker.
// False: there is no room. Only the worker calls it, one goroutine at a time.
func (q *OpRing) Submit(o *Op) bool {
	if q.pos-q.head.Load() >= OpEntries {
		return false
	}
	o.Encode(q.ops[q.pos%OpEntries*OpSize:])
	q.pos++
	faultpoint.Here("op.written")
	// SYNC POINT (operation): pairs with Next.
	q.tail.Store(q.pos)
	faultpoint.Here("op.after_tail")
	return true
}

// Next takes the oldest operation. more is false if there was none; ok is false
// for one that makes no sense. Only the daemon calls it.
func (q *OpRing) Next(o *Op) (ok, more bool) {
	// SYNC POINT (operation): pairs with Submit.
	if n := q.tail.Load() - q.pos; n == 0 || n > OpEntries {
		return false, false // nothing, or a tail from nowhere
	}
	ok = o.Decode(q.ops[q.pos%OpEntries*OpSize:])
	q.pos++
	q.head.Store(q.pos)
	return ok, true
}

// Room returns how many more results the worker has room for. The daemon has no
// more operations than that under way.
func (q *OpRing) Room() int {
	return OpEntries - int(min(q.donePos-q.doneHd.Load(), OpEntries))
}

// Complete stores a result, which the worker does not see before Wake. False:
// there is no room, because the worker wrote a head from nowhere. Only the daemon
// calls it.
func (q *OpRing) Complete(r *Result) bool {
	if q.Room() == 0 {
		return false
	}
	r.Encode(q.results[q.donePos%OpEntries*ResultSize:])
	q.donePos++
	return true
}

// Wake shows the worker what was completed, wakes it if it sleeps, and reports
// whether it did so. Only the daemon calls it.
func (q *OpRing) Wake() bool {
	// SYNC POINT (result): pairs with Take.
	q.doneTail.Store(q.donePos)
	// SYNC POINT (result sleep): pairs with PrepareSleep.
	if q.asleep.Load() == 0 || !q.asleep.CompareAndSwap(1, 0) {
		return false
	}
	q.Ring()
	return true
}

// Take takes the oldest result. Only the worker calls it, one goroutine at a time.
func (q *OpRing) Take(r *Result) bool {
	if q.Empty() {
		return false
	}
	r.Decode(q.results[q.donePos%OpEntries*ResultSize:])
	q.donePos++
	faultpoint.Here("result.read")
	q.doneHd.Store(q.donePos)
	faultpoint.Here("result.after_head")
	return true
}

// Empty reports whether Take would find nothing. Like Take it is the worker's.
func (q *OpRing) Empty() bool {
	// SYNC POINT (result): pairs with Wake.
	n := q.doneTail.Load() - q.donePos
	return n == 0 || n > OpEntries
}

// PrepareSleep announces that the worker is about to sleep on Bell and returns the
// value to sleep on. Check Empty once more before the sleep, and call CancelSleep
// after it or instead of it.
func (q *OpRing) PrepareSleep() uint32 {
	b := q.bell.Load()
	// SYNC POINT (result sleep): stored before the worker looks for results
	// again; the daemon stores the tail before it looks at asleep.
	q.asleep.Store(1)
	faultpoint.Here("opsleep.announced")
	return b
}

// CancelSleep ends what PrepareSleep began.
func (q *OpRing) CancelSleep() { q.asleep.Store(0) }

// Bell returns the futex word to sleep on.
func (q *OpRing) Bell() *atomic.Uint32 { return q.bell }

// Ring wakes the worker whether it has announced a sleep or not.
func (q *OpRing) Ring() {
	q.bell.Add(1)
	shm.FutexWake(q.bell, shm.WakeMany)
}
