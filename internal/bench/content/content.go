// Package content is what the messages of benchmarks contain: a fixed pattern, and
// over its first and last 8 bytes the message's stamp. Both ends are stamped so that
// a part of another message, or a message cut short, is noticed; shorter messages
// than two stamps have as much of one as there is room for.
package content

import (
	"bytes"
	"encoding/binary"
)

// StampSize is the size of a stamp in bytes.
const StampSize = 8

const patternSize = 64 << 10

// pattern is the content between the stamps, repeated as often as needed.
var pattern = makePattern()

func makePattern() []byte {
	p := make([]byte, patternSize)
	for i := 0; i < len(p); i += StampSize {
		binary.LittleEndian.PutUint64(p[i:], mix(uint64(i)))
	}
	return p
}

// mix is the finaliser of SplitMix64: every bit of x changes half of the result.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Stamp returns the stamp of message n of the process with the seed.
func Stamp(seed, n uint64) uint64 { return mix(seed ^ mix(n)) }

// Fill writes the content of a message with the stamp.
func Fill(p []byte, stamp uint64) {
	for n := 0; n < len(p); {
		n += copy(p[n:], pattern)
	}
	Restamp(p, stamp)
}

// Restamp changes the stamp of a message that Fill has written.
func Restamp(p []byte, stamp uint64) {
	if len(p) >= 2*StampSize {
		binary.LittleEndian.PutUint64(p, stamp)
		binary.LittleEndian.PutUint64(p[len(p)-StampSize:], stamp)
		return
	}
	var s [StampSize]byte
	binary.LittleEndian.PutUint64(s[:], stamp)
	copy(p, s[:])
}

// Intact reports whether p is, to the last byte, the content of size bytes with
// the stamp.
func Intact(p []byte, size int, stamp uint64) bool {
	if len(p) != size {
		return false
	}
	if size >= 2*StampSize {
		end := size - StampSize
		return binary.LittleEndian.Uint64(p) == stamp && binary.LittleEndian.Uint64(p[end:]) == stamp &&
			patterned(p[StampSize:end], StampSize)
	}
	var s [StampSize]byte
	binary.LittleEndian.PutUint64(s[:], stamp)
	head, end := min(StampSize, size), size
	return bytes.Equal(p[:head], s[:head]) && patterned(p[head:end], head)
}

// patterned reports whether p is the pattern from offset at on.
func patterned(p []byte, at int) bool {
	for len(p) > 0 {
		want := pattern[at%patternSize:]
		n := min(len(want), len(p))
		if !bytes.Equal(p[:n], want[:n]) {
			return false
		}
		p, at = p[n:], at+n
	}
	return true
}

// SameEnds reports whether the first and the last 8 bytes of a message are the
// same, as far as it has two stamps. It is what a receiver that does not know
// the stamp can check.
func SameEnds(p []byte) bool {
	return len(p) < 2*StampSize || bytes.Equal(p[:StampSize], p[len(p)-StampSize:])
}
