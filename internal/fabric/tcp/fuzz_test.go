package tcp

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func FuzzAddress(f *testing.F) {
	f.Add(address{host: "10.0.0.1", port: 4791, token: token{1, 2}}.encode())
	f.Add([]byte{1, 255, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAddress(b)
		if err == nil && !bytes.Equal(a.encode(), b) {
			t.Errorf("%x decodes to %+v and encodes to %x", b, a, a.encode())
		}
	})
}

func FuzzHeader(f *testing.F) {
	b := make([]byte, headerSize)
	putHeader(b, &frame{op: wireWriteImm, imm: 1, length: 2, addr: 3, key: 4, seq: 5})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != headerSize {
			return
		}
		var h frame
		if !parseHeader(b, &h) {
			return
		}
		again := make([]byte, headerSize)
		putHeader(again, &h)
		if !bytes.Equal(again, b) || h.payload() < 0 || h.payload() > MaxPayload {
			t.Errorf("%x decodes to %+v and encodes to %x", b, h, again)
		}
	})
}

// outcome is all that a stream has done to an endpoint.
func outcome(t testing.TB, stream []byte, cuts []int) string {
	w := newWire(t, 5)
	defer w.close()
	got := w.poll()
	var replies []byte
	for _, n := range append(cuts, len(stream)) {
		n = min(n, len(stream))
		got = append(got, w.send(stream[:n])...)
		stream = stream[n:]
		replies = append(replies, w.receive()...)
	}
	return fmt.Sprintf("%+v\n%x\n%x", got, mask(replies), w.mem.mem)
}

// mask clears what reads have read: a later write may overtake them.
func mask(replies []byte) []byte {
	var h frame
	for b := replies; len(b) >= headerSize; {
		parseHeader(b, &h)
		n := min(headerSize+h.payload(), len(b))
		if h.op == wireReadAnswer {
			clear(b[headerSize:n])
		}
		b = b[n:]
	}
	return replies
}

// sample is a stream that uses every kind of request.
func sample(w *wire) []byte {
	var b []byte
	read := w.frame(wireRead, base+8, "")
	read[8] = 200
	imm := w.frame(wireWriteImm, base+300, "immediate")
	imm[12] = 7
	for _, f := range [][]byte{
		imm, read,
		w.frame(wireWrite, base, string(bytes.Repeat([]byte("0123456789"), 600))),
		w.frame(wireFetchAdd, base+16, "\x05\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00"),
		w.frame(wireCompareSwap, base+24, "\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00"),
		w.frame(wireSend, 0, "sent"), w.frame(wireWriteImm, 0, ""),
	} {
		b = append(b, f...)
	}
	// The sequence is the order above, not the order of construction.
	seq, off := byte(0), 0
	for off < len(b) {
		var h frame
		b[off+4] = seq
		parseHeader(b[off:], &h)
		off += headerSize + h.payload()
		seq++
	}
	return b
}

// However a stream is cut, the result is the same. Bytes from the wire neither
// crash the receiver nor stop it for ever.
func FuzzStream(f *testing.F) {
	good := sample(&wire{})
	f.Add(good, uint16(1), uint16(31))
	f.Add(good, uint16(33), uint16(6000))
	f.Add(append(bytes.Clone(good), good...), uint16(3), uint16(4))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"), uint16(2), uint16(2))
	f.Fuzz(func(t *testing.T, stream []byte, cut1, cut2 uint16) {
		if len(stream) > 64<<10 {
			return
		}
		whole := outcome(t, stream, nil)
		parts := outcome(t, stream, []int{int(cut1), int(cut2)})
		if whole != parts {
			t.Errorf("in one piece:\n%.3000s\ncut at %d and %d:\n%.3000s", whole, cut1, cut2, parts)
		}
	})
}

// The same with damaged streams and any number of cuts.
func TestStreamCuts(t *testing.T) {
	good := sample(&wire{})
	rapid.Check(t, func(r *rapid.T) {
		stream := bytes.Clone(good)
		if rapid.Bool().Draw(r, "damage") {
			i := rapid.IntRange(0, len(stream)-1).Draw(r, "at")
			stream[i] ^= rapid.Byte().Draw(r, "with")
		}
		cuts := rapid.SliceOfN(rapid.IntRange(1, 3000), 0, 20).Draw(r, "cuts")
		if whole, parts := outcome(t, stream, nil), outcome(t, stream, cuts); whole != parts {
			r.Fatalf("in one piece:\n%.3000s\nin parts:\n%.3000s", whole, parts)
		}
	})
}
