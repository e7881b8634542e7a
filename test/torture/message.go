package main

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// A request is a head and a body of any size. The head names the entry of a book, and
// every byte of body and answer follows from that.
//
//	 0  u32  magic
//	 4  u32  book
//	 8  u32  entry
//	12  u32  length, head included
//	16  u32  length of the answer
//	20  u32  how long the handler takes, in microseconds
//	24  u32  1: the handler is to fail; 2: it is to write the region
//	28  u32  0
//	32  u64  digest of the above
const (
	headSize  = 40
	headMagic = 0x544f5254
)

// Flags of a head.
const (
	headFail   = 1
	headRegion = 2
)

// head is the head of a request.
type head struct {
	book, entry, length, answer int
	micros                      int
	flags                       uint32
}

// errFailed is the error of a handler that was asked to fail.
var errFailed = errors.New("as you asked")

var errBytes = errors.New("the bytes of the request are wrong")

// mix turns numbers that differ in any bit into ones that differ in half of them.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// seed is where the bytes of a message begin.
func (h *head) seed(answer bool) uint64 {
	s := mix(uint64(h.book)<<32 | uint64(h.entry))
	if answer {
		return mix(s)
	}
	return s
}

// fill writes the pattern that begins at seed.
func fill(b []byte, seed uint64) {
	for ; len(b) >= 8; b, seed = b[8:], seed+1 {
		binary.LittleEndian.PutUint64(b, mix(seed))
	}
	if len(b) > 0 {
		var last [8]byte
		binary.LittleEndian.PutUint64(last[:], mix(seed))
		copy(b, last[:])
	}
}

// filled reports whether the bytes are the pattern that begins at seed.
func filled(b []byte, seed uint64) bool {
	for ; len(b) >= 8; b, seed = b[8:], seed+1 {
		if binary.LittleEndian.Uint64(b) != mix(seed) {
			return false
		}
	}
	var last [8]byte
	binary.LittleEndian.PutUint64(last[:], mix(seed))
	return bytes.Equal(b, last[:len(b)])
}

// digest is the digest of an encoded head.
func digest(b []byte) uint64 {
	var d uint64
	for i := 0; i < 32; i += 8 {
		d = mix(d ^ binary.LittleEndian.Uint64(b[i:]))
	}
	return d
}

// encode writes the whole request into b, which has its length.
func (h *head) encode(b []byte) {
	for i, v := range []uint32{headMagic, uint32(h.book), uint32(h.entry), uint32(h.length), uint32(h.answer), uint32(h.micros), h.flags, 0} {
		binary.LittleEndian.PutUint32(b[4*i:], v)
	}
	binary.LittleEndian.PutUint64(b[32:], digest(b))
	fill(b[headSize:h.length], h.seed(false))
}

// decode reads and checks a whole request.
func decode(b []byte) (h head, err error) {
	if len(b) < headSize || binary.LittleEndian.Uint32(b) != headMagic || binary.LittleEndian.Uint64(b[32:]) != digest(b) {
		return h, errBytes
	}
	u := func(i int) int { return int(binary.LittleEndian.Uint32(b[4*i:])) }
	h = head{book: u(1), entry: u(2), length: u(3), answer: u(4), micros: u(5), flags: uint32(u(6))}
	if h.length != len(b) || h.entry >= bookEntries || !filled(b[headSize:], h.seed(false)) {
		return h, errBytes
	}
	return h, nil
}

// right reports whether an answer is what the request is to be answered with.
func (h *head) right(answer []byte) bool {
	return len(answer) == h.answer && filled(answer, h.seed(true))
}
