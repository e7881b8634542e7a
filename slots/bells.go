package slots

import (
	"math/bits"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// Offsets in a domain segment; see docs/layout.md, "Domain segment".
const (
	offAgentAsleep  = shm.HeaderSize
	offDirtyLanes   = shm.HeaderSize + 0x400
	offDirtyWorkers = shm.HeaderSize + 0x600

	// MaxLanes is how many lanes a domain can have; lane ids are less than it.
	MaxLanes = 4096
	// DomainSegmentSize is the size of a domain segment in bytes.
	DomainSegmentSize = shm.HeaderSize + 0x1000
)

// Bells is a view of a domain segment: how the workers of a domain tell its
// agent that there is something to do, without a system call while it is awake.
// A set bit is a hint: it costs the agent a look.
type Bells struct {
	asleep  *atomic.Uint32
	lanes   []atomic.Uint64
	workers []atomic.Uint64
}

// NewBells returns a view of a domain segment, the whole mapping of
// DomainSegmentSize bytes.
func NewBells(mem []byte) *Bells {
	return &Bells{
		asleep:  shm.Uint32At(mem, offAgentAsleep),
		lanes:   shm.Uint64s(mem, offDirtyLanes, MaxLanes/64),
		workers: shm.Uint64s(mem, offDirtyWorkers, (MaxOwner+1)/64),
	}
}

// MarkLane says that something was published in a lane. It returns true if the
// agent sleeps and the caller must ring the domain's eventfd, also if others do.
func (b *Bells) MarkLane(lane uint16) (ring bool) { return b.mark(b.lanes, int(lane)%MaxLanes) }

// MarkWorker says that a service worker finished something; like MarkLane.
func (b *Bells) MarkWorker(id int) (ring bool) { return b.mark(b.workers, id&MaxOwner) }

func (b *Bells) mark(set []atomic.Uint64, i int) bool {
	// SYNC POINT (dirty bit): what the bit is about was stored before this
	// load. If the bit is set here, the agent's swap in take comes later and
	// so does its look.
	if w, bit := &set[i/64], uint64(1)<<(i%64); w.Load()&bit == 0 {
		w.Or(bit)
	}
	faultpoint.Here("bell.marked")
	// SYNC POINT (agent sleep): pairs with PrepareSleep. The word stays as it is:
	// if the first to ring were the only one, all would wait for a process that is
	// stopped before it does.
	return b.asleep.Load() != 0
}

// TakeLanes calls f for every marked lane and clears its mark first. Only the
// agent calls it.
func (b *Bells) TakeLanes(f func(lane uint16)) { take(b.lanes, func(i int) { f(uint16(i)) }) }

// TakeWorkers is TakeLanes for workers.
func (b *Bells) TakeWorkers(f func(id int)) { take(b.workers, f) }

func take(set []atomic.Uint64, f func(i int)) {
	for x := range set {
		if set[x].Load() == 0 {
			continue
		}
		// SYNC POINT (dirty bit): pairs with mark.
		for w := set[x].Swap(0); w != 0; w &= w - 1 {
			f(x*64 + bits.TrailingZeros64(w))
		}
	}
}

// Dirty reports whether any mark is set.
func (b *Bells) Dirty() bool {
	for _, set := range [...][]atomic.Uint64{b.lanes, b.workers} {
		for x := range set {
			if set[x].Load() != 0 {
				return true
			}
		}
	}
	return false
}

// PrepareSleep announces that the agent is about to sleep on the domain's
// eventfd. Check Dirty once more before the sleep and call CancelSleep after it.
func (b *Bells) PrepareSleep() {
	// SYNC POINT (agent sleep): stored before the agent's last look at the
	// marks; a worker marks before it looks at asleep.
	b.asleep.Store(1)
}

// CancelSleep ends what PrepareSleep began.
func (b *Bells) CancelSleep() { b.asleep.Store(0) }
