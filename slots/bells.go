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
	offAgentSleeps  = shm.HeaderSize + 8
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
	// asleep is the agent's sleep, 0 while it is awake; sleeps is the last one, for the next agent.
	asleep, sleeps *atomic.Uint64
	lanes          []atomic.Uint64
	workers        []atomic.Uint64
	// rung is the sleep that this process has rung for last.
	rung atomic.Uint64
	// last is the agent's own copy of sleeps, 0 before its first sleep.
	last uint64
}

// Sleep is one of an agent's sleeps, 0 for none. They are odd numbers that do not come again,
// but for 1, which agents below ABI 4.3 have for all of theirs.
type Sleep uint64

const everySleep Sleep = 1

// NewBells returns a view of a domain segment, the whole mapping of
// DomainSegmentSize bytes.
func NewBells(mem []byte) *Bells {
	return &Bells{
		asleep:  shm.Uint64At(mem, offAgentAsleep),
		sleeps:  shm.Uint64At(mem, offAgentSleeps),
		lanes:   shm.Uint64s(mem, offDirtyLanes, MaxLanes/64),
		workers: shm.Uint64s(mem, offDirtyWorkers, (MaxOwner+1)/64),
	}
}

// MarkLane says that something was published in a lane. If the agent sleeps, it returns the
// sleep: unless HasRung, the caller must ring the domain's eventfd, also if other processes
// do, and then call Rung. It returns 0 if the agent is awake.
func (b *Bells) MarkLane(lane uint16) Sleep { return b.mark(b.lanes, int(lane)%MaxLanes) }

// MarkWorker says that a service worker finished something; like MarkLane.
func (b *Bells) MarkWorker(id int) Sleep { return b.mark(b.workers, id&MaxOwner) }

func (b *Bells) mark(set []atomic.Uint64, i int) Sleep {
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
	return Sleep(b.asleep.Load())
}

// HasRung reports whether this process has rung for a sleep that MarkLane or MarkWorker has
// returned. Its ring ends that sleep, and the agent's look after it comes after the mark: the
// sleep was loaded before it was cancelled.
func (b *Bells) HasRung(s Sleep) bool { return s != everySleep && s == Sleep(b.rung.Load()) }

// Rung notes that this process has rung the domain's eventfd for s. Until it has, its other
// threads must ring, too.
func (b *Bells) Rung(s Sleep) { b.rung.Store(uint64(s)) }

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
	// Whoever has rung for a sleep rings for no other one of that number: the next core's
	// agent goes on counting. Others can write to sleeps, so it is read once.
	if b.last == 0 {
		b.last = b.sleeps.Load()
	}
	b.last = b.last&^1 + 3
	b.sleeps.Store(b.last)
	// SYNC POINT (agent sleep): stored before the agent's last look at the
	// marks; a worker marks before it looks at asleep.
	b.asleep.Store(b.last)
}

// CancelSleep ends what PrepareSleep began.
func (b *Bells) CancelSleep() { b.asleep.Store(0) }
