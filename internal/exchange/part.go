package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// PartSize is the size in bytes of the header that a part and its answer start with,
// behind the references to regions if there are any.
const PartSize = 32

// MaxMessage is the largest request, answer or message of a stream, in bytes.
const MaxMessage = 1 << 30

// ErrTooLarge is what packages client and server say of a message that is too large.
var ErrTooLarge = errors.New("message too large")

// ErrProtocol is wrapped by the errors about bytes that no correct library sends.
var ErrProtocol = errors.New("exchange: protocol error")

// Op says what a part asks for.
type Op uint8

const (
	// OpOpenCall begins a request that is too large for its slots; Credit is its
	// size. The first bytes may come along. Answer: KindOpened.
	OpOpenCall Op = 1 + iota
	// OpOpenStream begins a stream, whose handler starts at once. Credit is how
	// many bytes may come down. Answer: KindOpened.
	OpOpenStream
	// OpPush carries bytes of a large request, at Offset, in any order. Answer:
	// KindAck.
	OpPush
	// OpRun lets the handler of a large request run, when all of it is there. Its
	// answer is the request's, and that of an ordinary request.
	OpRun
	// OpPull asks for bytes of a large answer from Offset on: Length of them, or as
	// many as there is room for. Answer: KindData.
	OpPull
	// OpSend carries the next bytes of a stream. Credit is how far the stream down
	// may go. Answer: KindAck, at once.
	OpSend
	// OpWait waits for something from the handler of a stream: bytes, credit if it
	// was asked for, or the end. Answer: KindData.
	OpWait
	// OpClose gives the exchange up. It is one-way.
	OpClose

	lastOp = OpClose
)

// PartFlags of a part or of its answer.
type PartFlags uint8

const (
	// FlagEnd: the stream of bytes in this direction ends behind the part. In an
	// answer the outcome of the stream follows; see Outcome.
	FlagEnd PartFlags = 1 << iota
	// FlagMore asks for credit: the requester has more to send than it may.
	FlagMore
	// FlagRegion: the bytes are, or are to go, in the last region that the request
	// refers to, from its start, and not in the part.
	FlagRegion
	// FlagOneWay: nobody waits for what becomes of the request that an OpOpenCall begins, which is executed also if its
	// requester has gone by then.
	FlagOneWay

	knownFlags = FlagEnd | FlagMore | FlagRegion | FlagOneWay
)

// PartRequest is the header of a part.
//
//	 0               8               16              24  25  26  28      32
//	+---------------+---------------+---------------+---+---+---+-------+
//	| exchange      | offset        | credit        |op |flg| 0 | length|
//	+---------------+---------------+---------------+---+---+---+-------+
type PartRequest struct {
	// ID is the exchange's, which the handler's process chose; 0 opens one.
	ID uint64
	// Offset is where the bytes are in the stream up, or of OpPull in that down.
	Offset uint64
	// Credit is how far, counted from its start, the stream down may go.
	Credit uint64
	Op     Op
	Flags  PartFlags
	// Length is how many bytes the part carries, or asks for.
	Length uint32
}

// offOp is where the operation is in the header of a part, in the first byte of a word with its flags and length.
const offOp = 24

// GlanceOp reads the operation of the part that starts at offset at of b, which may be shared memory and change: for
// what needs no more than a guess. 0: b is too short.
func GlanceOp(b []byte, at int) Op {
	if at += offOp; at >= len(b) {
		return 0
	}
	return Op(b[at])
}

// Encode writes the header into the first PartSize bytes of b.
func (p *PartRequest) Encode(b []byte) {
	b = b[:PartSize]
	le := binary.LittleEndian
	le.PutUint64(b[0:], p.ID)
	le.PutUint64(b[8:], p.Offset)
	le.PutUint64(b[16:], p.Credit)
	le.PutUint64(b[offOp:], uint64(p.Length)<<32|uint64(p.Flags)<<8|uint64(p.Op))
}

// Decode reads a part: its header, and the bytes that it carries itself, which are part
// of b. b may be shared memory: the header is read once. Errors wrap ErrProtocol.
func (p *PartRequest) Decode(b []byte) (data []byte, err error) {
	if len(b) < PartSize {
		return nil, fmt.Errorf("%w: a part of %d bytes", ErrProtocol, len(b))
	}
	le := binary.LittleEndian
	p.ID, p.Offset, p.Credit = le.Uint64(b[0:]), le.Uint64(b[8:]), le.Uint64(b[16:])
	word := le.Uint64(b[offOp:])
	p.Op, p.Flags, p.Length = Op(word), PartFlags(word>>8), uint32(word>>32)
	data = b[PartSize:]
	opens := p.Op == OpOpenCall || p.Op == OpOpenStream
	switch {
	case p.Op < OpOpenCall || p.Op > lastOp || p.Flags&^knownFlags != 0 || uint16(word>>16) != 0:
		return nil, fmt.Errorf("%w: a part with operation %d, flags %#x", ErrProtocol, p.Op, p.Flags)
	case opens != (p.ID == 0):
		return nil, fmt.Errorf("%w: operation %d of exchange %#x", ErrProtocol, p.Op, p.ID)
	case p.Op != OpPull && p.Flags&FlagRegion == 0 && int(p.Length) != len(data):
		return nil, fmt.Errorf("%w: a part with %d of %d bytes", ErrProtocol, len(data), p.Length)
	}
	return data, nil
}

// Kind says what the answer to a part is.
type Kind uint8

const (
	// KindOpened: the exchange exists. Its number and process are ID and To.
	KindOpened Kind = 1 + iota
	// KindAck: the part's bytes have been taken.
	KindAck
	// KindData: bytes of the stream down follow, from Offset on.
	KindData
	// KindMore is not an answer to a part but to a request whose answer fits no
	// run: Credit is its size, and it is to be fetched with OpPull from the
	// exchange ID of the process To. Its first bytes follow.
	KindMore

	lastKind = KindMore
)

// PartAnswer is the header of the answer to a part.
//
//	 0               8               16              24  25  26  28      32
//	+---------------+---------------+---------------+---+---+---+-------+
//	| exchange      | offset        | credit        |knd|flg|to | length|
//	+---------------+---------------+---------------+---+---+---+-------+
type PartAnswer struct {
	ID     uint64
	Offset uint64
	// Credit is how far the stream up may go, or of KindMore the answer's size.
	Credit uint64
	Kind   Kind
	Flags  PartFlags
	// To is the attach id of the process that has the exchange.
	To uint16
	// Length is how many bytes came down with the part.
	Length uint32
}

// Encode writes the header into the first PartSize bytes of b.
func (p *PartAnswer) Encode(b []byte) {
	b = b[:PartSize]
	le := binary.LittleEndian
	le.PutUint64(b[0:], p.ID)
	le.PutUint64(b[8:], p.Offset)
	le.PutUint64(b[16:], p.Credit)
	le.PutUint64(b[24:], uint64(p.Length)<<32|uint64(p.To)<<16|uint64(p.Flags)<<8|uint64(p.Kind))
}

// Decode reads an answer: its header, the bytes that came down in it, and what follows
// them, which is the outcome of a stream that has ended. b may be shared memory: the
// header is read once. Errors wrap ErrProtocol.
func (p *PartAnswer) Decode(b []byte) (data, rest []byte, err error) {
	if len(b) < PartSize {
		return nil, nil, fmt.Errorf("%w: an answer of %d bytes", ErrProtocol, len(b))
	}
	le := binary.LittleEndian
	p.ID, p.Offset, p.Credit = le.Uint64(b[0:]), le.Uint64(b[8:]), le.Uint64(b[16:])
	word := le.Uint64(b[24:])
	p.Kind, p.Flags, p.To, p.Length = Kind(word), PartFlags(word>>8), uint16(word>>16), uint32(word>>32)
	b = b[PartSize:]
	switch {
	case p.Kind < KindOpened || p.Kind > lastKind || p.Flags&^knownFlags != 0 || p.ID == 0:
		return nil, nil, fmt.Errorf("%w: an answer of kind %d, flags %#x, exchange %#x", ErrProtocol, p.Kind, p.Flags, p.ID)
	case p.Flags&FlagRegion != 0:
		return nil, b, nil
	case uint64(p.Length) > uint64(len(b)):
		return nil, nil, fmt.Errorf("%w: an answer with %d of %d bytes", ErrProtocol, len(b), p.Length)
	}
	return b[:p.Length:p.Length], b[p.Length:], nil
}

// OutcomeSize is the size in bytes of the status that the end of a stream carries. The
// text of an error follows it.
const OutcomeSize = 4

// AppendOutcome appends how a stream has ended.
func AppendOutcome(b []byte, status uint32, text string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, status), text...)
}

// ReadOutcome reads what AppendOutcome has written; the text may have been cut. Errors
// wrap ErrProtocol.
func ReadOutcome(b []byte) (status uint32, text string, err error) {
	if len(b) < OutcomeSize {
		return 0, "", fmt.Errorf("%w: the end of a stream without its outcome", ErrProtocol)
	}
	return binary.LittleEndian.Uint32(b), string(b[OutcomeSize:]), nil
}
