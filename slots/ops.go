package slots

import (
	"encoding/binary"
	"fmt"
)

// OpKind says what an operation on a region does. The values are part of the
// layout.
type OpKind uint8

const (
	// OpWrite writes local bytes to the caller's region.
	OpWrite OpKind = 1 + iota
	// OpRead reads from the caller's region into local memory.
	OpRead
	// OpCompareSwap compares the 8 bytes at the offset, a number in the byte
	// order of the machines, and stores another number there if they are equal.
	OpCompareSwap
	// OpFetchAdd adds to the 8 bytes at the offset.
	OpFetchAdd
	// OpWriteList is many writes, which a table in local memory names; see
	// Piece.
	OpWriteList
)

const (
	// OpSize is the size in bytes of a submission.
	OpSize = 64
	// AtomicSize is how many bytes an atomic operation is about, and what their
	// offset must be a multiple of.
	AtomicSize = 8
)

// Op is an operation that a handler wants done on a region of its caller, as a
// submission of the ring of operations carries it.
//
//	 0   1   2   4       8               16              24              32
//	+---+---+---+-------+---------------+---------------+---------------+
//	|knd|ref|lan| slot  | ticket        | offset        | length        |
//	+---+---+---+-------+---------------+---------------+---------------+
//	 32              40              48              56              64
//	+---------------+---------------+---------------+---------------+
//	| local region  | local offset  | cookie        | 0             |
//	+---------------+---------------+---------------+---------------+
//
// An atomic operation has its operands, compare and swap, in place of the local
// region and the local offset.
type Op struct {
	Kind OpKind
	// Ref is which reference of the call it is about, from 0 on.
	Ref uint8
	// Lane, Slot and Ticket name the call: the request that the worker handles.
	Lane   uint16
	Slot   uint32
	Ticket uint64
	// Offset is where in the referenced part, in bytes. Unused in a list.
	Offset uint64
	// Length is how many bytes; of a list how many pieces.
	Length uint64
	// Local and LocalOffset are the worker's own memory: the bytes, or the
	// table of a list.
	Local       RegionID
	LocalOffset uint64
	// Compare and Swap are the operands of an atomic operation; OpFetchAdd adds
	// Swap.
	Compare, Swap uint64
	// Cookie comes back in the result.
	Cookie uint64
}

// Atomic reports whether the operation is one on 8 bytes.
func (k OpKind) Atomic() bool { return k == OpCompareSwap || k == OpFetchAdd }

// Encode writes o into the first OpSize bytes of b.
func (o *Op) Encode(b []byte) {
	b = b[:OpSize]
	le := binary.LittleEndian
	b[0], b[1] = byte(o.Kind), o.Ref
	le.PutUint16(b[2:], o.Lane)
	le.PutUint32(b[4:], o.Slot)
	le.PutUint64(b[8:], o.Ticket)
	le.PutUint64(b[16:], o.Offset)
	le.PutUint64(b[24:], o.Length)
	x, y := uint64(o.Local), o.LocalOffset
	if o.Kind.Atomic() {
		x, y = o.Compare, o.Swap
	}
	le.PutUint64(b[32:], x)
	le.PutUint64(b[40:], y)
	le.PutUint64(b[48:], o.Cookie)
	le.PutUint64(b[56:], 0)
}

// Decode reads the submission in b, which may be shared memory: every byte is
// read once. It returns false for a kind that does not exist.
func (o *Op) Decode(b []byte) bool {
	b = b[:OpSize:OpSize]
	le := binary.LittleEndian
	*o = Op{
		Kind: OpKind(b[0]), Ref: b[1], Lane: le.Uint16(b[2:]), Slot: le.Uint32(b[4:]), Ticket: le.Uint64(b[8:]),
		Offset: le.Uint64(b[16:]), Length: le.Uint64(b[24:]), Cookie: le.Uint64(b[48:]),
	}
	x, y := le.Uint64(b[32:]), le.Uint64(b[40:])
	if o.Kind.Atomic() {
		o.Compare, o.Swap = x, y
	} else {
		o.Local, o.LocalOffset = RegionID(x), y
	}
	return o.Kind >= OpWrite && o.Kind <= OpWriteList
}

const (
	// PieceSize is the size in bytes of an entry of the table of an OpWriteList.
	PieceSize = 32
	// MaxPieces is how many entries a table has at most.
	MaxPieces = 1024
)

// Piece is one write of an OpWriteList: an entry of a table in local memory.
//
//	 0               8               16              24      28      32
//	+---------------+---------------+---------------+-------+-------+
//	| offset        | local region  | local offset  | length| 0     |
//	+---------------+---------------+---------------+-------+-------+
type Piece struct {
	// Offset is where in the referenced part, in bytes.
	Offset uint64
	// Local and LocalOffset are where the bytes are.
	Local       RegionID
	LocalOffset uint64
	// Length is how many bytes.
	Length uint32
}

// Encode writes p into the first PieceSize bytes of b.
func (p *Piece) Encode(b []byte) {
	b = b[:PieceSize]
	le := binary.LittleEndian
	le.PutUint64(b[0:], p.Offset)
	le.PutUint64(b[8:], uint64(p.Local))
	le.PutUint64(b[16:], p.LocalOffset)
	le.PutUint64(b[24:], uint64(p.Length))
}

// Decode reads the piece in b, which may be shared memory: every byte is read
// once. Reserved bytes mean nothing.
func (p *Piece) Decode(b []byte) {
	b = b[:PieceSize:PieceSize]
	le := binary.LittleEndian
	*p = Piece{
		Offset: le.Uint64(b[0:]), Local: RegionID(le.Uint64(b[8:])), LocalOffset: le.Uint64(b[16:]), Length: le.Uint32(b[24:]),
	}
}

// OpStatus is how an operation ended. The values are part of the layout. One that
// is neither OpOK nor OpLost has changed no byte.
type OpStatus uint32

const (
	// OpOK: it is done.
	OpOK OpStatus = 0
	// OpNotPermitted: the reference lacks the right, or the local memory is not
	// the worker's.
	OpNotPermitted OpStatus = 1
	// OpOutOfBounds: beyond the referenced part, or beyond the local region.
	OpOutOfBounds OpStatus = 2
	// OpMisaligned: an atomic operation on bytes that are no aligned word.
	OpMisaligned OpStatus = 3
	// OpExpired: the call is over, or its caller is gone.
	OpExpired OpStatus = 4
	// OpLost: the connection to the caller's node broke. A write, or an atomic
	// operation, may have happened.
	OpLost OpStatus = 5
	// OpInvalid: it makes no sense: an unknown kind, a reference that the call
	// does not have.
	OpInvalid OpStatus = 6
	// OpNoMemory: the local memory could not be registered with the device.
	OpNoMemory OpStatus = 7
	// OpUnsupported: the fabric cannot do it.
	OpUnsupported OpStatus = 8
)

var opStatusText = [...]string{
	OpOK:           "ok",
	OpNotPermitted: "not permitted",
	OpOutOfBounds:  "out of bounds",
	OpMisaligned:   "misaligned",
	OpExpired:      "expired",
	OpLost:         "connection lost",
	OpInvalid:      "invalid operation",
	OpNoMemory:     "memory could not be registered",
	OpUnsupported:  "not supported",
}

// String returns the status in words.
func (s OpStatus) String() string {
	if int(s) < len(opStatusText) {
		return opStatusText[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// ResultSize is the size in bytes of a completion.
const ResultSize = 32

// Result is how an operation ended, as a completion of the ring carries it.
//
//	 0               8       12      16              24              32
//	+---------------+-------+-------+---------------+---------------+
//	| cookie        | status| 0     | value         | 0             |
//	+---------------+-------+-------+---------------+---------------+
type Result struct {
	// Cookie is the operation's.
	Cookie uint64
	Status OpStatus
	// Value is what an atomic operation found.
	Value uint64
}

// Encode writes r into the first ResultSize bytes of b.
func (r *Result) Encode(b []byte) {
	b = b[:ResultSize]
	le := binary.LittleEndian
	le.PutUint64(b[0:], r.Cookie)
	le.PutUint64(b[8:], uint64(r.Status))
	le.PutUint64(b[16:], r.Value)
	le.PutUint64(b[24:], 0)
}

// Decode reads the completion in b.
func (r *Result) Decode(b []byte) {
	b = b[:ResultSize:ResultSize]
	le := binary.LittleEndian
	*r = Result{Cookie: le.Uint64(b[0:]), Status: OpStatus(le.Uint32(b[8:])), Value: le.Uint64(b[16:])}
}
