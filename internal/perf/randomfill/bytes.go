package randomfill

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"gonum.org/v1/gonum/mathext/prng"
)

// chunk is how many bytes are made at a time to be compared.
const chunk = 64 << 10

// stream is an endless row of random bytes: the outputs of MT19937-64, little endian.
type stream struct {
	mt   *prng.MT19937_64
	word [8]byte
	left int // bytes of word that were not handed out, its last ones
}

// newStream returns the bytes for a region. Each has a seed of its own, so that pages that
// come to the wrong region are noticed.
func newStream(seed uint64, region int) *stream {
	s := &stream{mt: prng.NewMT19937_64()}
	s.mt.Seed(seed + uint64(region))
	return s
}

// fill fills p with the next bytes.
func (s *stream) fill(p []byte) {
	if s.left > 0 {
		n := copy(p, s.word[8-s.left:])
		s.left -= n
		p = p[n:]
	}
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, s.mt.Uint64())
	}
	if len(p) > 0 {
		binary.LittleEndian.PutUint64(s.word[:], s.mt.Uint64())
		s.left = 8 - copy(p, s.word[:])
	}
}

// background is what a client's memory holds before a round, so that what was not asked for is
// noticed wherever it lands. Each round has another one.
type background [chunk]byte

func newBackground(seed, round uint64) *background {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], ^round)
	b := new(background)
	// It never fails.
	_, _ = rand.NewChaCha8(key).Read(b[:])
	return b
}

// fill fills a region.
func (b *background) fill(region []byte) {
	for n := 0; n < len(region); {
		n += copy(region[n:], b[:])
	}
}

// MismatchError says where the client's memory is not as it must be.
type MismatchError struct {
	// Region and Offset say where.
	Region, Offset int
	// Page is the page, -1: of no page that was asked for.
	Page int
	// Want and Got are the bytes there.
	Want, Got byte
}

// Error says it for people.
func (e *MismatchError) Error() string {
	if e.Page < 0 {
		return fmt.Sprintf("region %d was changed where nothing was asked for: byte %d is %#02x, was %#02x", e.Region, e.Offset, e.Got, e.Want)
	}
	return fmt.Sprintf("page %d of region %d is not what the seed says: byte %d of the region is %#02x, want %#02x", e.Page, e.Region, e.Offset, e.Got, e.Want)
}

// verify compares a whole region: the pages of the list with what the seed says, in the order
// of the list, and all else with the background.
func (l Layout) verify(region int, memory []byte, list []uint32, seed uint64, back *background) error {
	s := newStream(seed, region)
	filled := make([]bool, l.Total())
	var scratch [chunk]byte
	for _, page := range list {
		filled[page] = true
		from := int(page) * l.PageSize
		for at := from; at < from+l.PageSize; {
			want := scratch[:min(chunk, from+l.PageSize-at)]
			s.fill(want)
			if i, same := compare(memory[at:at+len(want)], want); !same {
				return &MismatchError{Region: region, Offset: at + i, Page: int(page), Want: want[i], Got: memory[at+i]}
			}
			at += len(want)
		}
	}
	for page := 0; page < len(filled); page++ {
		if filled[page] {
			continue
		}
		if err := back.verify(region, memory, page*l.PageSize, (page+1)*l.PageSize); err != nil {
			return err
		}
	}
	return back.verify(region, memory, l.Total()*l.PageSize, len(memory))
}

// verify compares the bytes from..to of a region with the background.
func (b *background) verify(region int, memory []byte, from, to int) error {
	for at := from; at < to; {
		phase := at % chunk
		want := b[phase:min(chunk, phase+to-at)]
		if i, same := compare(memory[at:at+len(want)], want); !same {
			return &MismatchError{Region: region, Offset: at + i, Page: -1, Want: want[i], Got: memory[at+i]}
		}
		at += len(want)
	}
	return nil
}

// compare returns whether two slices of one length are the same, and where they are not.
func compare(a, b []byte) (at int, same bool) {
	if bytes.Equal(a, b) {
		return 0, true
	}
	for a[at] == b[at] {
		at++
	}
	return at, false
}
