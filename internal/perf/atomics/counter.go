package atomics

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

const (
	wordSize = 8
	// memorySize is that of the server's memory, in which each counter has a cache line of its
	// own and neighbours that nobody may touch.
	memorySize = 512
	line       = 64
	// start is what a counter begins with: it crosses 2^32 after a few increments.
	start = 1<<32 - 8
	// untouched is what all other words hold.
	untouched = 0x5a5a5a5a5a5a5a5a
)

// offset says where a type's counter is.
func offset(kind string) int {
	if kind == FetchAdd {
		return 2 * line
	}
	return 4*line + wordSize
}

// word reads a counter. Atomic operations use the order of bytes of the machine.
func word(memory []byte, at int) uint64 { return binary.NativeEndian.Uint64(memory[at:]) }

// prepare writes a server's memory before the first operation.
func prepare(memory []byte) {
	for at := 0; at < memorySize; at += wordSize {
		binary.NativeEndian.PutUint64(memory[at:], untouched)
	}
	for _, kind := range Types {
		binary.NativeEndian.PutUint64(memory[offset(kind):], start)
	}
}

// inspect returns an error if anything but the counters has changed.
func inspect(memory []byte) error {
	for at := 0; at < memorySize; at += wordSize {
		if at != offset(FetchAdd) && at != offset(CompareSwap) && word(memory, at) != untouched {
			return fmt.Errorf("the 8 bytes at %d were changed, which are no counter: they are %#x", at, word(memory, at))
		}
	}
	return nil
}

// AtomicityError says how operations were not atomic.
type AtomicityError struct{ Detail string }

// Error says it for people.
func (e *AtomicityError) Error() string { return "operations were not atomic: " + e.Detail }

func broken(format string, args ...any) error {
	return &AtomicityError{Detail: fmt.Sprintf(format, args...)}
}

// tickets remembers which values were given out by increments.
type tickets struct {
	given []uint64 // a bit for each
	total uint64
	count uint64
}

func newTickets(total uint64) *tickets {
	return &tickets{given: make([]uint64, (total+63)/64), total: total}
}

// take takes the value that an increment has found: each from start on must be found once.
func (t *tickets) take(old uint64) error {
	n := old - start
	if n >= t.total {
		return broken("an increment has found %d, and the counter goes from %d to %d", old, uint64(start), start+t.total)
	}
	bit := uint64(1) << (n % 64)
	if t.given[n/64]&bit != 0 {
		return broken("two increments have found %d", old)
	}
	t.given[n/64] |= bit
	t.count++
	return nil
}

// bytes returns which values were given out, a bit for each.
func (t *tickets) bytes() []byte {
	b := make([]byte, 0, 8*len(t.given))
	for _, w := range t.given {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// merge adds those that another process was given.
func (t *tickets) merge(b []byte) error {
	if len(b) != 8*len(t.given) {
		return broken("a client says of %d values whether it has found them, instead of %d", 8*len(b), 64*len(t.given))
	}
	for i := range t.given {
		w := binary.LittleEndian.Uint64(b[8*i:])
		if rest := t.total - 64*uint64(i); rest < 64 && w>>rest != 0 {
			return broken("a client has found %d or more, and the counter ends at %d", uint64(start)+t.total, uint64(start)+t.total)
		}
		if twice := w & t.given[i]; twice != 0 {
			return broken("two increments have found %d", uint64(start)+64*uint64(i)+uint64(bits.TrailingZeros64(twice)))
		}
		t.given[i] |= w
		t.count += uint64(bits.OnesCount64(w))
	}
	return nil
}

// settle checks what the counter is in the end.
func (t *tickets) settle(where string, value uint64) error {
	if value != start+t.total || t.count != t.total {
		return broken("%d increments, of which %d were done, have made the counter %d instead of %d, %s",
			t.total, t.count, value, start+t.total, where)
	}
	return nil
}
