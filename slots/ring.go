package slots

import (
	"fmt"
	"sync/atomic"

	"github.com/rdmad/rdmad/shm"
)

// LaneState is what the daemon tells the workers about a lane.
type LaneState uint32

const (
	// LaneOpen accepts requests.
	LaneOpen LaneState = iota
	// LaneDraining answers what was published and accepts no more.
	LaneDraining
	// LaneClosed is dead: nothing published in it will be sent.
	LaneClosed
)

// Ring is a view of a lane segment. Its methods are safe for concurrent use by
// any number of threads and processes, with the exceptions they name.
type Ring struct {
	geo         Geometry
	words       []atomic.Uint64
	answers     []atomic.Uint64
	slots       []byte
	cursor      *atomic.Uint64
	late        *atomic.Uint64
	skipped     *atomic.Uint64
	state       *atomic.Uint32
	share       *atomic.Uint32
	freeBell    *atomic.Uint32
	freeWaiters *atomic.Uint32
}

// NewRing returns a view of a lane segment of the given geometry. mem is the
// whole mapping, header page included; it must outlive the ring.
func NewRing(mem []byte, g Geometry) (*Ring, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	if len(mem) < g.SegmentSize() {
		return nil, fmt.Errorf("%w: segment of %d bytes, want %d", ErrGeometry, len(mem), g.SegmentSize())
	}
	off := g.slotsOffset()
	return &Ring{
		geo:         g,
		words:       shm.Uint64s(mem, offWords, g.Slots),
		answers:     shm.Uint64s(mem, g.answerWordsOffset(), g.Slots),
		slots:       mem[off : off+g.SlotBytes() : off+g.SlotBytes()],
		cursor:      shm.Uint64At(mem, offCursor),
		late:        shm.Uint64At(mem, offLate),
		skipped:     shm.Uint64At(mem, offSkipped),
		state:       shm.Uint32At(mem, offLaneState),
		share:       shm.Uint32At(mem, offShare),
		freeBell:    shm.Uint32At(mem, offFreeBell),
		freeWaiters: shm.Uint32At(mem, offFreeWaiters),
	}, nil
}

// index returns the slot at a position of the cursor.
func (r *Ring) index(pos uint64) int {
	if n := uint64(r.geo.Slots); n&(n-1) != 0 {
		return int(pos % n)
	}
	return int(pos & uint64(r.geo.Slots-1)) // a division costs as much as the rest of a claim
}

// Geometry returns the ring's shape.
func (r *Ring) Geometry() Geometry { return r.geo }

// Slots returns the bytes of all slots, the part to register with a fabric.
func (r *Ring) Slots() []byte { return r.slots }

// Word returns slot i's word. i must be less than Geometry().Slots.
func (r *Ring) Word(i int) Word { return Word(r.words[i].Load()) }

// Cursor returns the claim cursor: a position (slot index modulo the number of
// slots) at which the next claim starts to look. Every published slot lies
// before it. A hint written by workers: any value is possible.
func (r *Ring) Cursor() uint64 { return r.cursor.Load() }

// Rewind moves the cursor from pos to the next position of slot 0, as a claim does that finds no room before the
// end of the ring, and returns that position. It is for the sender that has looked at every slot up to pos, and not
// safe for concurrent use by two. False: the cursor is not at pos any more, and nothing has changed.
func (r *Ring) Rewind(pos uint64) (next uint64, ok bool) {
	skip := uint64(r.geo.Slots - r.index(pos))
	// SYNC POINT (skipped): pairs with Claimed. Whoever sees the cursor moved sees this.
	r.skipped.Add(skip)
	// Who has read the cursor before, and claims the slot at pos now, finds itself behind the cursor: see advance.
	if !r.cursor.CompareAndSwap(pos, pos+skip) {
		r.skipped.Add(-skip)
		return pos, false
	}
	return pos + skip, true
}

// Claimed returns how many slots the cursor has moved by for claims, modulo 2^64: less for a moment while the daemon
// rewinds it, never more. A hint, like the cursor.
func (r *Ring) Claimed() uint64 {
	// SYNC POINT (skipped): pairs with Rewind. Read first, the cursor has not been moved by more than is in skipped.
	cursor := r.cursor.Load()
	return cursor - r.skipped.Load()
}

// TakeLate returns, once, the lowest position of the claims that succeeded
// behind the cursor since the last call: a sender that has passed the position
// must go back to it. Like the cursor a hint: any value is possible. Call it
// before Cursor.
func (r *Ring) TakeLate() (pos uint64, ok bool) {
	if r.late.Load() == 0 {
		return 0, false
	}
	// SYNC POINT (late claim): pairs with noteLate.
	v := r.late.Swap(0)
	return v - 1, v != 0
}

// State returns what the daemon last said about the lane.
func (r *Ring) State() LaneState { return LaneState(r.state.Load()) }

// SetState is for the daemon. It does not wake anybody; see WakeFree.
func (r *Ring) SetState(s LaneState) { r.state.Store(uint32(s)) }

// Run is a claimed run of slots, the value a worker keeps for a request.
type Run struct {
	// Index is the first slot.
	Index int
	// Len is the number of slots.
	Len int
	// Ticket is the first slot's generation: the request's identity.
	Ticket uint64
}

// Header returns the bytes of the run's header, in shared memory.
func (r *Ring) Header(u Run) []byte { return r.HeaderAt(u.Index) }

// HeaderAt returns the 64 bytes of the header in slot i.
func (r *Ring) HeaderAt(i int) []byte {
	o := i * r.geo.SlotSize
	return r.slots[o : o+HeaderSize : o+HeaderSize]
}

// Payload returns the run's bytes after the header, in shared memory.
func (r *Ring) Payload(u Run) []byte { return r.PayloadAt(u.Index, u.Len) }

// PayloadAt returns the payload bytes of the run of k slots at index i; the run
// must lie within the ring.
func (r *Ring) PayloadAt(i, k int) []byte {
	o, e := i*r.geo.SlotSize+HeaderSize, (i+k)*r.geo.SlotSize
	return r.slots[o:e:e]
}
