package slots

import (
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/shm"
)

// Limits of a ring's geometry.
const (
	// MinSlotSize holds a header and as many bytes of payload.
	MinSlotSize = 128
	// MaxSlotSize bounds the size of a slot in bytes.
	MaxSlotSize = 64 << 10
	// SlotAlign is what a slot size must be a multiple of.
	SlotAlign = 64
	// MinSlots and MaxSlots bound the number of slots. The immediate could
	// name 2^24.
	MinSlots = 16
	MaxSlots = 64 << 10
)

// Offsets in a lane segment; see docs/layout.md, "Lane segment". Hot words are
// two cache lines apart, because CPUs prefetch lines in pairs.
const (
	offCursor      = shm.HeaderSize
	offLaneState   = shm.HeaderSize + 0x080
	offShare       = shm.HeaderSize + 0x084 // read with the state by every claim
	offFreeBell    = shm.HeaderSize + 0x100
	offFreeWaiters = shm.HeaderSize + 0x180
	offLate        = shm.HeaderSize + 0x200
	offSkipped     = shm.HeaderSize + 0x280
	offWords       = shm.HeaderSize + 0x1000
	slotsAlign     = 4096
)

// ErrGeometry is wrapped by Geometry.Check's errors.
var ErrGeometry = errors.New("slots: bad geometry")

// Geometry is the shape of a ring and of its mirror. Programs carry it in their
// own messages and memory; it is never read from a segment.
type Geometry struct {
	// SlotSize is the size of a slot in bytes.
	SlotSize int `json:"slot_size"`
	// Slots is the number of slots.
	Slots int `json:"slots"`
	// MaxRun is the largest number of slots of one message.
	MaxRun int `json:"max_run"`
}

// Check reports what is wrong with g, wrapping ErrGeometry.
func (g Geometry) Check() error {
	switch {
	case g.SlotSize < MinSlotSize || g.SlotSize > MaxSlotSize || g.SlotSize%SlotAlign != 0:
		return fmt.Errorf("%w: slot size %d, want a multiple of %d from %d to %d", ErrGeometry, g.SlotSize, SlotAlign, MinSlotSize, MaxSlotSize)
	case g.Slots < MinSlots || g.Slots > MaxSlots:
		return fmt.Errorf("%w: %d slots, want %d to %d", ErrGeometry, g.Slots, MinSlots, MaxSlots)
	case g.MaxRun < 1 || g.MaxRun > MaxRun || g.MaxRun > g.Slots:
		return fmt.Errorf("%w: max run %d, want 1 to %d and at most %d slots", ErrGeometry, g.MaxRun, MaxRun, g.Slots)
	}
	return nil
}

// SegmentSize returns the size in bytes of a lane segment, header page included.
func (g Geometry) SegmentSize() int { return g.slotsOffset() + g.SlotBytes() }

// SlotBytes returns the size in bytes of all slots: the part of the segment
// that is registered with the fabric.
func (g Geometry) SlotBytes() int { return g.Slots * g.SlotSize }

// MaxPayload returns the largest payload of one message in bytes.
func (g Geometry) MaxPayload() int { return g.MaxRun*g.SlotSize - HeaderSize }

// RunFor returns how many slots a message with the given payload takes. The
// result may exceed MaxRun.
func (g Geometry) RunFor(payload int) int {
	return (HeaderSize + payload + g.SlotSize - 1) / g.SlotSize
}

// Capacity returns how many payload bytes fit a run.
func (g Geometry) Capacity(run int) int { return run*g.SlotSize - HeaderSize }

func (g Geometry) answerWordsOffset() int { return offWords + 8*g.Slots }

func (g Geometry) slotsOffset() int {
	end := offWords + 16*g.Slots
	return (end + slotsAlign - 1) / slotsAlign * slotsAlign
}
