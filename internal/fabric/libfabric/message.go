package libfabric

import (
	"encoding/binary"
	"errors"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	messageSize  = 64
	messageMagic = 0x4d43_4652 // "RFCM"
	// messageVersion changes with the layout.
	messageVersion = 1
)

// messageKind is what a control message says.
type messageKind uint8

const (
	// msgHello: the sender's endpoint is ready; over the endpoints themselves.
	msgHello messageKind = iota + 1
	// msgGone: the sender's endpoint has ended; between the control endpoints of devices.
	msgGone
)

var errMessage = errors.New("not a control message")

// message is a control message between two endpoints, named by their tokens.
type message struct {
	kind messageKind
	// why is, in msgGone, the status with which the sender's endpoint has failed, or
	// StatusSuccess.
	why      fabric.Status
	to, from token
}

// encode returns the message, little endian:
//
//	 0  u32   magic
//	 4  u8    version, 1
//	 5  u8    kind: 1 hello, 2 gone
//	 6  u8    status
//	 7  u8    0
//	 8  [16]  token of the receiving endpoint
//	24  [16]  token of the sending endpoint
//	40  [24]  0
func (m message) encode() (b [messageSize]byte) {
	binary.LittleEndian.PutUint32(b[:], messageMagic)
	b[4], b[5], b[6] = messageVersion, byte(m.kind), byte(m.why)
	copy(b[8:], m.to[:])
	copy(b[24:], m.from[:])
	return b
}

// decodeMessage is the inverse of encode; it takes bytes from anybody.
func decodeMessage(b []byte) (message, error) {
	if len(b) != messageSize || binary.LittleEndian.Uint32(b) != messageMagic || b[4] != messageVersion ||
		b[5] < byte(msgHello) || b[5] > byte(msgGone) || b[6] > byte(fabric.StatusFatal) || b[7] != 0 {
		return message{}, errMessage
	}
	for _, v := range b[40:] {
		if v != 0 {
			return message{}, errMessage
		}
	}
	return message{kind: messageKind(b[5]), why: fabric.Status(b[6]), to: token(b[8:24]), from: token(b[24:40])}, nil
}
