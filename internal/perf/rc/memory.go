package rc

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"

	"github.com/rdmad/rdmad/internal/fabric"
)

// guard is how many bytes before, between and behind the two areas belong to neither.
const guard = 64

// place says where the areas of a side's memory are:
//
//	guard | out: what it gives | guard | in: what it gets | guard
type place struct{ size int }

func (p place) total() int { return 3*guard + 2*p.size }
func (p place) out() int   { return guard }
func (p place) in() int    { return 2*guard + p.size }

// content returns what a side's memory holds in a step: random bytes everywhere, which differ
// between sides and steps.
func (t *Tool) content(number int, side fabric.Role) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], t.Seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(number))
	key[16] = byte(side)
	b := make([]byte, place{t.Size}.total())
	// It never fails.
	_, _ = rand.NewChaCha8(key).Read(b)
	return b
}

// ContentError says where a side's memory is not as it must be.
type ContentError struct {
	// Where says what is there.
	Where string
	// Offset counts from the area's first byte.
	Offset    int
	Want, Got byte
}

// Error says it for people.
func (e *ContentError) Error() string {
	return fmt.Sprintf("%s: byte %d is %#02x, want %#02x", e.Where, e.Offset, e.Got, e.Want)
}

// compare returns a *ContentError if two slices of one length differ.
func compare(where string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for got[at] == want[at] {
		at++
	}
	return &ContentError{Where: where, Offset: at, Want: want[at], Got: got[at]}
}

// inspect compares the whole memory of a side after a step with what it held before and, if it
// is the side that has got something, what the other side has given.
func (p place) inspect(memory, before, given []byte) error {
	in, end := p.in(), p.in()+p.size
	if given == nil {
		return compare("memory that nobody was to change", memory, before)
	}
	if err := compare("what has come", memory[in:end], given[p.out():p.out()+p.size]); err != nil {
		return err
	}
	if err := compare("memory before what has come", memory[:in], before[:in]); err != nil {
		return err
	}
	return compare("memory behind what has come", memory[end:], before[end:])
}

// digest is what sides tell each other of the bytes that they have seen.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
