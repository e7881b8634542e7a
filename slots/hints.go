package slots

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// Offsets in a worker segment; see docs/layout.md, "Worker segment".
const (
	offDown     = shm.HeaderSize
	offUp       = shm.HeaderSize + 0x400
	offOverflow = shm.HeaderSize + 0x800
	offDeparted = shm.HeaderSize + 0x880
	offEntries  = shm.HeaderSize + 0x1000

	hintTail   = 0x000
	hintHead   = 0x080
	hintAsleep = 0x100
	hintBell   = 0x180

	// HintEntries is the capacity of each of a worker's two hint rings.
	HintEntries = 4096
	// WorkerSegmentSize is the size of a worker segment in bytes.
	WorkerSegmentSize = opSegmentEnd
)

// Hint names a slot: the content of a hint ring's entry. Hints make it fast;
// the slot words are the truth, so every hint is checked against them.
//
//	 63  62  60 59       48 47                24 23                0
//	+---+------+-----------+--------------------+-------------------+
//	| o | 0    | lane (12) | slot index (24)    | ticket, low bits  |
//	+---+------+-----------+--------------------+-------------------+
type Hint uint64

const (
	// hintOrdered is the bit o: the request has a number of an order.
	hintOrdered Hint = 1 << 63

	// hintTicketMask and hintIndexMask are the bits that a hint has of a ticket and of a slot's index,
	// hintIndexShift and hintLaneShift where the index and the lane begin.
	hintTicketMask = 1<<24 - 1
	hintIndexMask  = 1<<24 - 1
	hintIndexShift = 24
	hintLaneShift  = 48
)

// MakeHint builds a hint. lane is less than MaxLanes.
func MakeHint(lane uint16, index int, ticket uint64) Hint {
	return Hint(uint64(lane)%MaxLanes<<hintLaneShift | uint64(index)&hintIndexMask<<hintIndexShift | ticket&hintTicketMask)
}

// Lane returns the lane id, which is less than MaxLanes.
func (h Hint) Lane() uint16 { return uint16(h>>hintLaneShift) % MaxLanes }

// Ordered reports whether the request has a number of an order, which its header
// tells.
func (h Hint) Ordered() bool { return h&hintOrdered != 0 }

// WithOrder returns the hint of a request that has a number of an order.
func (h Hint) WithOrder() Hint { return h | hintOrdered }

// Index returns the slot index, which may be out of the lane's range.
func (h Hint) Index() int { return int(h >> hintIndexShift & hintIndexMask) }

// TicketIs reports whether the hint's ticket bits are those of ticket.
func (h Hint) TicketIs(ticket uint64) bool {
	return uint64(h)&hintTicketMask == ticket&hintTicketMask
}

// HintRing is a single-producer, single-consumer ring of hints with a bell for
// a sleeping consumer. Producer and consumer each keep their own position in
// private memory and take from the other's word in shared memory no more than
// a count they bound themselves.
type HintRing struct {
	tail, head   *atomic.Uint64
	asleep, bell *atomic.Uint32
	// pager, of the producer, wakes a consumer that is parked; nil if it has none.
	pager *shm.Pager
	// entries are plain memory: tail and head say who may touch which.
	entries []byte
	// pos is this side's own position; the shared word is a copy for the
	// other side.
	pos uint64
	// limit caches what the other side last published.
	limit uint64
}

// WorkerRings are the hint rings of a worker segment.
type WorkerRings struct {
	// Down carries hints from the daemon: answered slots for a client,
	// delivered slots for a service worker.
	Down HintRing
	// Up carries finished slots from a service worker to the daemon.
	Up HintRing
	// overflow says that the daemon could not store a hint for lack of room.
	overflow *atomic.Uint32
	// departed says that the worker touches its slots no more.
	departed *atomic.Uint32
	// tracing says that the daemon wants stamps, and taken are those of answers; see
	// SetTracing and SetTaken.
	tracing *atomic.Uint32
	taken   []atomic.Uint64
}

// NewWorkerRings returns a view of a worker segment: mem is the whole mapping
// of WorkerSegmentSize bytes. Each process makes its own view and uses one end
// of each ring.
func NewWorkerRings(mem []byte) *WorkerRings {
	ring := func(ctl, entries int) HintRing {
		return HintRing{
			tail:    shm.Uint64At(mem, ctl+hintTail),
			head:    shm.Uint64At(mem, ctl+hintHead),
			asleep:  shm.Uint32At(mem, ctl+hintAsleep),
			bell:    shm.Uint32At(mem, ctl+hintBell),
			entries: mem[entries : entries+8*HintEntries : entries+8*HintEntries],
		}
	}
	return &WorkerRings{
		Down:     ring(offDown, offEntries),
		Up:       ring(offUp, offEntries+8*HintEntries),
		overflow: shm.Uint32At(mem, offOverflow),
		departed: shm.Uint32At(mem, offDeparted),
		tracing:  shm.Uint32At(mem, offTracing),
		taken:    shm.Uint64s(mem, offTaken, 2*TakenStamps),
	}
}

// ResumeWorkerRings is NewWorkerRings for a daemon that takes over a segment in use: its
// ends of the rings go on where those of the daemon before it were, as far as that had
// said. Of "up" it may see up to 63 hints again, and hints that were staged and never
// published are lost: look at the slot words, and let the worker do so (SetOverflow).
// What the worker has written to the words since can make a ring look full or empty,
// no more.
func ResumeWorkerRings(mem []byte) *WorkerRings {
	w := NewWorkerRings(mem)
	w.Down.pos = w.Down.tail.Load()
	if w.Down.limit = w.Down.head.Load(); w.Down.pos-w.Down.limit > HintEntries {
		w.Down.limit = w.Down.pos - HintEntries // a head from nowhere: full
	}
	w.Up.pos = w.Up.head.Load()
	w.Up.limit = w.Up.pos
	w.SetTracing(false) // whoever asked has lost its daemon
	return w
}

// SetOverflow tells the worker to look at all its slots.
func (w *WorkerRings) SetOverflow() { w.overflow.Store(1) }

// TakeOverflow reports and clears the overflow mark.
func (w *WorkerRings) TakeOverflow() bool {
	return w.overflow.Load() != 0 && w.overflow.Swap(0) != 0
}

// Depart tells the daemon that the worker touches no slot any more, like its goodbye on
// the socket, which is lost with a daemon that dies when it has read it. Only the worker
// calls it, before it closes the socket.
func (w *WorkerRings) Depart() { w.departed.Store(1) }

// Departed reports whether the worker has called Depart. Only what it holds itself
// depends on that being true.
func (w *WorkerRings) Departed() bool { return w.departed.Load() != 0 }

// Push appends a hint. False: the ring is full. Only the producer calls it.
func (q *HintRing) Push(h Hint) bool {
	ok := q.Stage(h)
	q.Publish()
	return ok
}

// Stage is Push, but the consumer does not see the hint before Publish or Wake:
// for a producer with many.
func (q *HintRing) Stage(h Hint) bool {
	if q.pos-q.limit >= HintEntries {
		q.limit = q.head.Load()
		// A head from nowhere counts as a full ring: its owner loses hints.
		if q.pos-q.limit >= HintEntries {
			return false
		}
	}
	binary.LittleEndian.PutUint64(q.entry(), uint64(h))
	q.pos++
	faultpoint.Here("hint.staged")
	return true
}

// entry returns the place of the hint at pos.
func (q *HintRing) entry() []byte {
	o := q.pos % HintEntries * 8
	return q.entries[o : o+8]
}

// Publish shows the consumer what was staged.
func (q *HintRing) Publish() {
	// SYNC POINT (hint): pairs with Pop.
	q.tail.Store(q.pos)
}

// headEvery is how many hints a consumer takes before it tells the producer,
// unless it has taken all.
const headEvery = 64

// Pop takes the oldest hint. Only the consumer calls it.
func (q *HintRing) Pop() (Hint, bool) {
	if q.pos == q.limit {
		// SYNC POINT (hint): pairs with Publish.
		q.limit = q.tail.Load()
		if q.pos == q.limit {
			return 0, false
		}
		if q.limit-q.pos > HintEntries {
			q.limit = q.pos // a tail from nowhere: nothing to be had
			return 0, false
		}
	}
	h := Hint(binary.LittleEndian.Uint64(q.entry()))
	q.pos++
	faultpoint.Here("hint.read")
	if q.pos == q.limit || q.pos%headEvery == 0 {
		shm.StoreRelease(q.head, q.pos)
		faultpoint.Here("hint.after_head")
	}
	return h, true
}

// Empty reports whether Pop would find nothing. Only the consumer calls it.
func (q *HintRing) Empty() bool {
	// A tail from nowhere must not keep the consumer from sleeping.
	n := q.tail.Load() - q.pos
	return q.pos == q.limit && (n == 0 || n > HintEntries)
}

// Len returns how many hints Pop would find, at most HintEntries. Only the consumer calls it.
func (q *HintRing) Len() int {
	n := q.tail.Load() - q.pos
	if n > HintEntries {
		n = q.limit - q.pos // a tail from nowhere: what was there before
	}
	return int(n)
}

// Backlog returns how many hints the consumer has not said to have taken, at
// most HintEntries. Only the producer calls it.
func (q *HintRing) Backlog() int {
	return int(min(q.pos-q.head.Load(), HintEntries))
}

// PrepareSleep announces that the consumer is about to sleep on Bell and
// returns the value to sleep on. Check Empty once more before the sleep, and
// call CancelSleep after it or instead of it.
func (q *HintRing) PrepareSleep() uint32 { return q.announce(onBell) }

// PreparePark is PrepareSleep for a consumer that is about to wait for a page instead: if
// Bell has the value no more, it must not.
func (q *HintRing) PreparePark() uint32 { return q.announce(onPage) }

// What a consumer sleeps on, in asleep; 0 is awake.
const (
	onBell = 1
	onPage = 2
)

func (q *HintRing) announce(how uint32) uint32 {
	b := q.bell.Load()
	// SYNC POINT (sleep): asleep is stored before the consumer looks at tail
	// again; the producer stores tail before it looks at asleep in Wake.
	q.asleep.Store(how)
	faultpoint.Here("sleep.announced")
	return b
}

// SetPager says how the producer wakes a consumer that is parked. Only the producer calls it.
func (q *HintRing) SetPager(p *shm.Pager) { q.pager = p }

// CancelSleep ends what PrepareSleep or PreparePark began.
func (q *HintRing) CancelSleep() { q.asleep.Store(0) }

// Bell returns the futex word to sleep on.
func (q *HintRing) Bell() *atomic.Uint32 { return q.bell }

// Wake publishes what was staged, wakes the consumer if it sleeps, and reports
// whether it did so. Only the producer calls it.
func (q *HintRing) Wake() bool {
	woken, sleeper, pager := q.Rouse()
	if sleeper != nil {
		shm.FutexWake(sleeper, shm.WakeMany)
	}
	if pager != nil {
		pager.Page()
	}
	return woken
}

// Rouse is Wake without its last step, for a producer that wakes several: unless sleeper is
// nil, the caller must wake whoever sleeps on that word, and page pager unless that is nil.
func (q *HintRing) Rouse() (woken bool, sleeper *atomic.Uint32, pager *shm.Pager) {
	q.Publish()
	// SYNC POINT (sleep): pairs with PrepareSleep.
	faultpoint.Here("wake.published")
	how := q.asleep.Load()
	if how != onBell && how != onPage || !q.asleep.CompareAndSwap(how, 0) {
		return false, nil, nil
	}
	faultpoint.Here("wake.before_bell")
	q.bell.Add(1)
	if how == onPage && q.pager != nil {
		// SYNC POINT (page): the word was changed before the page is sent; pairs with shm.Pages.WaitWhile.
		return true, nil, q.pager
	}
	return true, q.bell, nil
}

// Ring wakes the consumer however it sleeps, and whether it has announced that or not. The
// consumer's own process wakes it so too, unless it is parked.
func (q *HintRing) Ring() {
	q.bell.Add(1)
	shm.FutexWake(q.bell, shm.WakeMany)
	if q.pager != nil {
		q.pager.Page()
	}
}
