package test

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
)

// A request of the jobs service is the length of the wanted answer, 4 bytes,
// little endian, one byte more and then anything. The answer is a stream of
// bytes that follows from a hash of the whole request: a request of which a
// single byte was damaged, or an answer to another request, is wrong from the
// first byte on.

// minSize is the smallest request, and the smallest message of the tests.
const minSize = 5

// answerSize returns the length of the answer that a request asks for.
func answerSize(req []byte) int {
	if len(req) < minSize {
		return -1
	}
	return int(binary.LittleEndian.Uint32(req))
}

// digest returns the hash of a message.
func digest(msg []byte) uint64 {
	h := fnv.New64a()
	h.Write(msg)
	return h.Sum64()
}

// stream writes the answer to the request with the digest.
func stream(answer []byte, digest uint64) {
	var word [8]byte
	for i := 0; i < len(answer); i += len(word) {
		digest = digest*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(word[:], digest^digest>>29)
		copy(answer[i:], word[:])
	}
}

// right reports whether an answer is, byte by byte, the one of size bytes to the
// request with the digest.
func right(answer []byte, size int, digest uint64) bool {
	want := make([]byte, size)
	stream(want, digest)
	return bytes.Equal(answer, want)
}

// source makes messages from a seed.
type source struct {
	rand *rand.Rand
	fill *rand.ChaCha8
	// most is the largest message.
	most int
}

func newSource(seed uint64, most int) *source {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	fill := rand.NewChaCha8(key)
	return &source{rand: rand.New(rand.NewPCG(seed, 1)), fill: fill, most: most}
}

// size returns a random size from minSize to most. Every order of magnitude is
// as likely as every other, as sizes of messages are.
func (s *source) size() int {
	low, high := math.Log(minSize), math.Log(float64(s.most)+1)
	return min(s.most, int(math.Exp(low+s.rand.Float64()*(high-low))))
}

// message returns a random message that asks for an answer of a random size.
func (s *source) message(buf []byte) (msg []byte, answer int) {
	msg = buf[:s.size()]
	// It never fails.
	_, _ = s.fill.Read(msg)
	answer = s.size()
	binary.LittleEndian.PutUint32(msg, uint32(answer))
	return msg, answer
}
