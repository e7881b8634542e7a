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
	// FlagPart: the message is a part of an exchange of more than one request,
	// and its payload starts with the exchange's own header, which only the
	// libraries read. A request says in To which process has the exchange.
	FlagPart
	// FlagReceipt: the requester wants to know that the request was executed,
	// and no data; the answer has FlagControl.
	FlagReceipt
	// FlagInPlace: the requester wants the answer in the slots of its request, and
	// an error if it does not fit.
	FlagInPlace
	// FlagCancel: the one-way message is for the responder's daemon, which drops a
	// request; see Cancel.
	FlagCancel
	// FlagCarry: something goes with the request that is not its payload; see
	// SplitCarried. Only to nodes and processes that have said to know it.
	FlagCarry

	requestFlags = FlagRefs | FlagPart | FlagReceipt | FlagInPlace | FlagCancel | FlagCarry
	answerFlags  = FlagError | FlagControl | FlagPart
)

// Header is the decoded header of a message.
//
//	 0               8       12    14  15  16      20      24
//	+---------------+-------+-----+---+---+-------+-------+---------------+
//	| ticket  |0|frm| len   | run |kin|flg| method| answer| deadline      |
//	+---------------+-------+-----+---+---+-------+-------+---------------+
//	 32              40      44      48              56              64
//	+---------------+-------+-------+---------------+---------------+
//	| trace         | status|r|0|to | cookie        |ord|aft| after |
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
	// Trace is 0, or what a trace needs: stamps of the requester, a mark of its daemon, or
	// in an answer, with Deadline, the handler's times; see MakeMark.
	Trace uint64
	// Status is the outcome in an answer; see Status.
	Status Status
	// Refs is how many references to regions a request has.
	Refs uint8
	// To is the attach id of the service process that a part is for; 0 for any.
	To uint16
	// Cookie travels to the handler and back unchanged.
	Cookie uint64
	// Order, if not 0, makes requests of the same lane and method with the same
	// number go to one process, which starts them one after the other in the order
	// in which they were sent.
	Order uint16
	// After and AfterTicket are the slot, and the lower half of the ticket, of the
	// request that an ordered one must not be sent before; its own if there is
	// none. 0 in all other messages.
	After       uint16
	AfterTicket uint32
	// From is the attach id of the requester, or 0; its daemon sees to it that
	// it is no other's.
	From uint16
}

// Where the bytes are that a glance is at.
const (
	offKind  = 14
	offFlags = 15
	offRefs  = 44
)

// Encode writes h into the first HeaderSize bytes of b.
func (h *Header) Encode(b []byte) {
	b = b[:HeaderSize]
	le := binary.LittleEndian
	le.PutUint64(b[0:], uint64(h.From)<<48|h.Ticket)
	le.PutUint32(b[8:], h.Length)
	le.PutUint16(b[12:], h.Run)
	b[offKind], b[offFlags] = byte(h.Kind), byte(h.Flags)
	le.PutUint32(b[16:], h.Method)
	le.PutUint32(b[20:], h.Answer)
	le.PutUint64(b[24:], uint64(h.Deadline))
	le.PutUint64(b[32:], h.Trace)
	le.PutUint64(b[40:], uint64(h.To)<<48|uint64(h.Refs)<<32|uint64(h.Status))
	le.PutUint64(b[48:], h.Cookie)
	le.PutUint64(b[56:], uint64(h.AfterTicket)<<32|uint64(h.After)<<16|uint64(h.Order))
}

// Decode reads the header in b, which may be shared memory: every byte is read
// once. It does not judge what it read; see CheckRequest and CheckAnswer. It
// returns false if bits that must be zero are not.
func (h *Header) Decode(b []byte) bool {
	b = b[:HeaderSize:HeaderSize]
	le := binary.LittleEndian
	ticket := le.Uint64(b[0:])
	h.Ticket, h.From = ticket&(1<<48-1), uint16(ticket>>48)
	h.Length = le.Uint32(b[8:])
	h.Run = le.Uint16(b[12:])
	h.Kind, h.Flags = Kind(b[offKind]), Flags(b[offFlags])
	h.Method = le.Uint32(b[16:])
	h.Answer = le.Uint32(b[20:])
	h.Deadline = int64(le.Uint64(b[24:]))
	h.Trace = le.Uint64(b[32:])
	status := le.Uint64(b[40:])
	h.Status, h.Refs, h.To = Status(status), uint8(status>>32), uint16(status>>48)
	h.Cookie = le.Uint64(b[48:])
	order := le.Uint64(b[56:])
	h.Order, h.After, h.AfterTicket = uint16(order), uint16(order>>16), uint32(order>>32)
	return uint8(status>>40) == 0 && (h.Refs != 0) == (h.Flags&FlagRefs != 0) && (h.Order != 0 || order == 0) && h.Ticket <= TicketMask
}

// Glance reads the payload's length and the deadline from the header in b, which may be
// shared memory and change: for what needs no more than a guess.
func Glance(b []byte) (length uint32, deadline int64) {
	b = b[:HeaderSize:HeaderSize]
	return binary.LittleEndian.Uint32(b[8:]), int64(binary.LittleEndian.Uint64(b[24:]))
}

// GlanceKind reads what the message is, as Glance does.
func GlanceKind(b []byte) Kind { return Kind(b[offKind]) }

// GlanceFlags reads the flags, as Glance does.
func GlanceFlags(b []byte) Flags { return Flags(b[offFlags]) }

// GlanceRefs reads how many references to regions a request has, as Glance does.
func GlanceRefs(b []byte) int { return int(b[offRefs]) }

// CheckRequest verifies a decoded request against the ring it came through, and
// the run its reader found by other means. Errors wrap ErrProtocol.
func (h *Header) CheckRequest(g Geometry, run int) error {
	switch {
	case h.Kind != KindRequest && h.Kind != KindOneWay:
		return fmt.Errorf("%w: a request of kind %d", ErrProtocol, h.Kind)
	case h.Flags&^requestFlags != 0 || h.Status != 0:
		return fmt.Errorf("%w: a request with flags %#x, status %d", ErrProtocol, h.Flags, h.Status)
	case h.Flags&FlagCancel != 0 && (h.Kind != KindOneWay || h.Flags != FlagCancel || h.Length != CancelSize || h.Order != 0):
		return fmt.Errorf("%w: a message of kind %d, flags %#x and %d bytes that cancels", ErrProtocol, h.Kind, h.Flags, h.Length)
	case h.From > MaxOwner:
		return fmt.Errorf("%w: a request from process %d", ErrProtocol, h.From)
	case h.To != 0 && h.Flags&FlagPart == 0 || h.To > MaxOwner:
		return fmt.Errorf("%w: a request with flags %#x for process %d", ErrProtocol, h.Flags, h.To)
	case int(h.After) >= g.Slots:
		return fmt.Errorf("%w: a request after that of slot %d", ErrProtocol, h.After)
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
	case (h.Flags&FlagError != 0) != (h.Status != StatusOK) || h.Flags&^answerFlags != 0 || h.To != 0 || h.From != 0:
		return fmt.Errorf("%w: an answer with flags %#x and status %d", ErrProtocol, h.Flags, h.Status)
	}
	return h.checkSize(g, run, 0)
}

// Fits reports whether the payload of a decoded answer is no larger than what its
// requester asked room for. The headers of errors and parts do not count: they have the
// whole run.
func (h *Header) Fits(answer uint32) bool {
	return h.Length <= answer || h.Flags&(FlagError|FlagPart) != 0
}

func (h *Header) checkSize(g Geometry, run int, answer uint64) error {
	capacity := uint64(g.Capacity(run))
	if run < 1 || int(h.Run) != run || uint64(h.Length) > capacity || answer > capacity {
		return fmt.Errorf("%w: run of %d slots says run %d, %d payload bytes, %d answer bytes", ErrProtocol, run, h.Run, h.Length, answer)
	}
	return nil
}
