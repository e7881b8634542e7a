package slots

import (
	"encoding/binary"
	"fmt"
)

// HeaderSize is the size in bytes of the header at the start of a message's
// first slot; the payload follows it directly.
const HeaderSize = 64

// Kind says what a message is.
type Kind uint8

const (
	// KindRequest wants an answer.
	KindRequest Kind = 1 + iota
	// KindOneWay wants no more than its slots back.
	KindOneWay
	// KindAnswer answers either of them, in the same slots.
	KindAnswer
)

// Flags of a header.
type Flags uint8

const (
	// FlagError: the answer is an error; Status says which, the payload is a
	// text for people.
	FlagError Flags = 1 << iota
	// FlagControl: the answer carries no data (the outcome of a one-way
	// message, or an answer whose data went another way).
	FlagControl
	// FlagRefs: the payload of the request starts with references to regions;
	// Refs says how many.
	FlagRefs

	knownFlags = FlagError | FlagControl | FlagRefs
)

// Header is the decoded header of a message.
//
//	 0               8       12    14  15  16      20      24
//	+---------------+-------+-----+---+---+-------+-------+---------------+
//	| ticket        | len   | run |kin|flg| method| answer| deadline      |
//	+---------------+-------+-----+---+---+-------+-------+---------------+
//	 32              40      44      48              56              64
//	+---------------+-------+-------+---------------+---------------+
//	| trace         | status|rf| 0  | cookie        | 0             |
//	+---------------+-------+-------+---------------+---------------+
type Header struct {
	// Ticket is the first slot's generation.
	Ticket uint64
	// Length is the size of the payload in bytes.
	Length uint32
	// Run is the number of slots.
	Run uint16
	// Kind says what the message is.
	Kind Kind
	// Flags: see the Flag constants.
	Flags Flags
	// Method is the id the responder's daemon gave to a method of a service.
	Method uint32
	// Answer is the largest answer payload the requester can take, in bytes.
	Answer uint32
	// Deadline is when the requester loses interest, in nanoseconds of its
	// node's CLOCK_MONOTONIC. 0: never.
	Deadline int64
	// Trace is an id that the requester chose for its logs.
	Trace uint64
	// Status is the outcome in an answer; see Status.
	Status Status
	// Refs is how many references to regions a request has.
	Refs uint8
	// Cookie travels to the handler and back unchanged.
	Cookie uint64
}

// Encode writes h into the first HeaderSize bytes of b.
func (h *Header) Encode(b []byte) {
	b = b[:HeaderSize]
	le := binary.LittleEndian
	le.PutUint64(b[0:], h.Ticket)
	le.PutUint32(b[8:], h.Length)
	le.PutUint16(b[12:], h.Run)
	b[14], b[15] = byte(h.Kind), byte(h.Flags)
	le.PutUint32(b[16:], h.Method)
	le.PutUint32(b[20:], h.Answer)
	le.PutUint64(b[24:], uint64(h.Deadline))
	le.PutUint64(b[32:], h.Trace)
	le.PutUint64(b[40:], uint64(h.Refs)<<32|uint64(h.Status))
	le.PutUint64(b[48:], h.Cookie)
	le.PutUint64(b[56:], 0)
}

// Decode reads the header in b, which may be shared memory: every byte is read
// once. It does not judge what it read; see CheckRequest and CheckAnswer. It
// returns false if bits that must be zero are not.
func (h *Header) Decode(b []byte) bool {
	b = b[:HeaderSize:HeaderSize]
	le := binary.LittleEndian
	h.Ticket = le.Uint64(b[0:])
	h.Length = le.Uint32(b[8:])
	h.Run = le.Uint16(b[12:])
	h.Kind, h.Flags = Kind(b[14]), Flags(b[15])
	h.Method = le.Uint32(b[16:])
	h.Answer = le.Uint32(b[20:])
	h.Deadline = int64(le.Uint64(b[24:]))
	h.Trace = le.Uint64(b[32:])
	status := le.Uint64(b[40:])
	h.Status, h.Refs = Status(status), uint8(status>>32)
	h.Cookie = le.Uint64(b[48:])
	return status>>40 == 0 && (h.Refs != 0) == (h.Flags&FlagRefs != 0) && le.Uint64(b[56:]) == 0 && h.Flags&^knownFlags == 0 && h.Ticket <= TicketMask
}

// CheckRequest verifies a decoded request against the ring it came through, and
// the run its reader found by other means. Errors wrap ErrProtocol.
func (h *Header) CheckRequest(g Geometry, run int) error {
	switch {
	case h.Kind != KindRequest && h.Kind != KindOneWay:
		return fmt.Errorf("%w: a request of kind %d", ErrProtocol, h.Kind)
	case h.Flags&^FlagRefs != 0 || h.Status != 0:
		return fmt.Errorf("%w: a request with flags %#x, status %d", ErrProtocol, h.Flags, h.Status)
	case h.Refs > MaxRefs || uint64(h.Length) < uint64(h.Refs)*RefSize:
		return fmt.Errorf("%w: a request of %d bytes with %d references", ErrProtocol, h.Length, h.Refs)
	}
	return h.checkSize(g, run, uint64(h.Answer))
}

// CheckAnswer verifies a decoded answer against the ring, the ticket and the
// run of its request. Errors wrap ErrProtocol.
func (h *Header) CheckAnswer(g Geometry, run int, ticket uint64) error {
	switch {
	case h.Kind != KindAnswer:
		return fmt.Errorf("%w: an answer of kind %d", ErrProtocol, h.Kind)
	case h.Ticket != ticket:
		return fmt.Errorf("%w: an answer with ticket %d, want %d", ErrProtocol, h.Ticket, ticket)
	case (h.Flags&FlagError != 0) != (h.Status != StatusOK) || h.Flags&FlagRefs != 0:
		return fmt.Errorf("%w: an answer with flags %#x and status %d", ErrProtocol, h.Flags, h.Status)
	}
	return h.checkSize(g, run, 0)
}

func (h *Header) checkSize(g Geometry, run int, answer uint64) error {
	capacity := uint64(g.Capacity(run))
	if run < 1 || int(h.Run) != run || uint64(h.Length) > capacity || answer > capacity {
		return fmt.Errorf("%w: run of %d slots says run %d, %d payload bytes, %d answer bytes", ErrProtocol, run, h.Run, h.Length, answer)
	}
	return nil
}
