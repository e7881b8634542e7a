package tcp

import (
	"encoding/binary"
	"fmt"
)

const (
	greetingSize    = 48
	greetingVersion = 1
	// helloMagic and welcomeMagic spell "RDMADTCP" and "RDMADTCA" in the order
	// of the bytes on the wire.
	helloMagic   = 0x50435444414d4452
	welcomeMagic = 0x41435444414d4452
)

// greeting is the first thing on a connection in either direction: the hello of
// the active side, the welcome of the passive one.
type greeting struct {
	// to is the receiver's token and from the sender's: each side shows that
	// it was introduced to the other by the bootstrap.
	to, from token
}

// encode returns, little endian:
//
//	 0  u64   magic: "RDMADTCP" in a hello, "RDMADTCA" in a welcome
//	 8  u16   version, 1
//	10  u16   0
//	12  u32   0
//	16  [16]  token of the receiver
//	32  [16]  token of the sender
func (g greeting) encode(magic uint64) []byte {
	b := make([]byte, greetingSize)
	binary.LittleEndian.PutUint64(b, magic)
	binary.LittleEndian.PutUint16(b[8:], greetingVersion)
	copy(b[16:], g.to[:])
	copy(b[32:], g.from[:])
	return b
}

// decodeGreeting is the inverse of encode.
func decodeGreeting(b []byte, magic uint64) (greeting, error) {
	var g greeting
	if len(b) != greetingSize || binary.LittleEndian.Uint64(b) != magic {
		return g, fmt.Errorf("tcp: not a peer")
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != greetingVersion {
		return g, fmt.Errorf("tcp: peer speaks version %d, this program %d", v, greetingVersion)
	}
	if binary.LittleEndian.Uint16(b[10:])|uint16(b[12])|uint16(b[13])|uint16(b[14])|uint16(b[15]) != 0 {
		return g, fmt.Errorf("tcp: reserved bytes are set")
	}
	copy(g.to[:], b[16:])
	copy(g.from[:], b[32:])
	return g, nil
}
