package verbs

import (
	"encoding/binary"
	"errors"
)

// A connection by ConnectOOB needs to know when the peer's queue pair is ready, and
// when it is gone. The ends tell each other with datagrams over the same device
// and path. Datagrams may be lost: readiness is repeated until it is answered, and
// an end that is told nothing of the peer's Close learns of it from its retries.

const (
	messageSize  = 40
	messageMagic = 0x4d43_4452 // "RDCM"
	// messageVersion changes with the layout.
	messageVersion = 1
)

// messageKind is what a control message says.
type messageKind uint8

const (
	// msgReady: the sender's queue pair takes messages.
	msgReady messageKind = iota + 1
	// msgReadyBoth is msgReady and says that the peer's was heard: it needs no
	// answer.
	msgReadyBoth
	// msgGone: the sender's queue pair has ended.
	msgGone
)

var errMessage = errors.New("not a control message")

// message is a control message between two endpoints, named by their tokens.
type message struct {
	kind     messageKind
	to, from token
}

// encode returns the message, little endian:
//
//	 0  u32   magic
//	 4  u8    version, 1
//	 5  u8    kind: 1 ready, 2 ready and heard, 3 gone
//	 6  u16   0
//	 8  [16]  token of the receiving endpoint
//	24  [16]  token of the sending endpoint
func (m message) encode() (b [messageSize]byte) {
	binary.LittleEndian.PutUint32(b[:], messageMagic)
	b[4], b[5] = messageVersion, byte(m.kind)
	copy(b[8:], m.to[:])
	copy(b[24:], m.from[:])
	return b
}

// decodeMessage is the inverse of encode; it takes bytes from anybody.
func decodeMessage(b []byte) (message, error) {
	if len(b) != messageSize || binary.LittleEndian.Uint32(b) != messageMagic || b[4] != messageVersion ||
		b[5] < byte(msgReady) || b[5] > byte(msgGone) || b[6]|b[7] != 0 {
		return message{}, errMessage
	}
	return message{kind: messageKind(b[5]), to: token(b[8:24]), from: token(b[24:40])}, nil
}
