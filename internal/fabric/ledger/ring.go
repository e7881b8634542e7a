package ledger

import "math/bits"

// Ring is a queue of fixed capacity. Positions count up and wrap around with 32 bits: Head is that of
// the first entry, Tail the one after the last. Its user advances them, and sees that the entries
// do not become more than the ring was made for.
type Ring[T any] struct {
	slots      []T
	Head, Tail uint32
}

// NewRing makes a ring for n entries. Its capacity is the power of two from there on.
func NewRing[T any](n int) Ring[T] {
	return Ring[T]{slots: make([]T, 1<<bits.Len(uint(max(n, 1)-1)))}
}

// Len returns how many entries there are.
func (r *Ring[T]) Len() int { return int(r.Tail - r.Head) }

// Cap returns how many there can be.
func (r *Ring[T]) Cap() int { return len(r.slots) }

// Index returns where the entry at a position is kept: less than Cap.
func (r *Ring[T]) Index(pos uint32) uint32 { return pos & uint32(len(r.slots)-1) }

// At returns the entry at a position, which stays where it is as long as it is in the ring.
func (r *Ring[T]) At(pos uint32) *T { return &r.slots[r.Index(pos)] }

// Find returns the position in the ring that agrees with low in the bits of mask, which are the
// lowest ones and as many at least as Index has, and whether there is one.
func (r *Ring[T]) Find(low, mask uint32) (pos uint32, ok bool) {
	ahead := (low - r.Head) & mask
	return r.Head + ahead, ahead < r.Tail-r.Head
}

// FindIndex returns the position in the ring with an Index, and whether there is one.
func (r *Ring[T]) FindIndex(index uint32) (pos uint32, ok bool) {
	return r.Find(index, uint32(len(r.slots)-1))
}
