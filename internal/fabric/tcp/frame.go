package tcp

import (
	"encoding/binary"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	// headerSize is the size of a frame header in bytes.
	headerSize = 32
	// MaxPayload is the largest payload of one frame, and so of one work
	// request, in bytes.
	MaxPayload = 1 << 30
	// operandSize is the payload of an atomic request: two 64-bit operands.
	operandSize = 16
	// atomicSize is the payload of an atomic's answer and the size of the
	// memory it works on.
	atomicSize = 8
)

// wireOp is the kind of a frame. The values are part of the wire format.
type wireOp uint8

const (
	wireWrite       wireOp = 1
	wireWriteImm    wireOp = 2
	wireRead        wireOp = 3
	wireSend        wireOp = 4
	wireCompareSwap wireOp = 5
	wireFetchAdd    wireOp = 6

	wireReadAnswer   wireOp = 16
	wireAtomicAnswer wireOp = 17
	wireNak          wireOp = 18
)

// isRequest reports whether frames of the kind carry a work request, so that
// they count in the sequence and can be refused.
func (op wireOp) isRequest() bool { return op >= wireWrite && op <= wireFetchAdd }

// frame is a decoded header.
type frame struct {
	op     wireOp
	status fabric.Status
	// seq counts the requests of one direction from 0 and wraps; an answer or
	// NAK carries its request's.
	seq    uint32
	length uint32
	imm    uint32
	addr   uint64
	key    uint64
}

// payload returns how many bytes follow the header.
func (f *frame) payload() int {
	if f.op == wireRead {
		return 0
	}
	return int(f.length)
}

// putHeader writes f to the first headerSize bytes of b. Little endian:
//
//	 0  u8   op
//	 1  u8   status   NAK: fabric.Status, else 0
//	 2  u16  0
//	 4  u32  seq      request: its number; answer, NAK: that of its request
//	 8  u32  length   bytes of payload; read: bytes wanted (no payload)
//	12  u32  imm      write-imm: the immediate, else 0
//	16  u64  addr     write, write-imm, read, atomics: remote address, else 0
//	24  u64  key      same: remote key, else 0
func putHeader(b []byte, f *frame) {
	_ = b[headerSize-1]
	b[0], b[1], b[2], b[3] = byte(f.op), byte(f.status), 0, 0
	binary.LittleEndian.PutUint32(b[4:], f.seq)
	binary.LittleEndian.PutUint32(b[8:], f.length)
	binary.LittleEndian.PutUint32(b[12:], f.imm)
	binary.LittleEndian.PutUint64(b[16:], f.addr)
	binary.LittleEndian.PutUint64(b[24:], f.key)
}

// parseHeader reads a header from the first headerSize bytes of b and reports
// whether it is one: known op, length in bounds, unused fields zero. f holds
// whatever was read in both cases.
func parseHeader(b []byte, f *frame) bool {
	_ = b[headerSize-1]
	f.op, f.status = wireOp(b[0]), fabric.Status(b[1])
	f.seq = binary.LittleEndian.Uint32(b[4:])
	f.length = binary.LittleEndian.Uint32(b[8:])
	f.imm = binary.LittleEndian.Uint32(b[12:])
	f.addr = binary.LittleEndian.Uint64(b[16:])
	f.key = binary.LittleEndian.Uint64(b[24:])
	if b[2]|b[3] != 0 || f.length > MaxPayload {
		return false
	}
	if f.op != wireWriteImm && f.imm != 0 || f.op != wireNak && f.status != 0 {
		return false
	}
	remote := true
	switch f.op {
	case wireWrite, wireWriteImm, wireRead:
	case wireCompareSwap, wireFetchAdd:
		if f.length != operandSize {
			return false
		}
	case wireSend, wireReadAnswer:
		remote = false
	case wireAtomicAnswer:
		remote = false
		if f.length != atomicSize {
			return false
		}
	case wireNak:
		remote = false
		if f.length != 0 || !nakStatus(f.status) {
			return false
		}
	default:
		return false
	}
	return remote || f.addr|f.key == 0
}

// nakStatus reports whether a NAK may carry s.
func nakStatus(s fabric.Status) bool {
	switch s {
	case fabric.StatusRemoteInvalid, fabric.StatusRemoteAccess, fabric.StatusRemoteOperation:
		return true
	}
	return false
}

// wireOps translates work requests to frames.
var wireOps = [...]wireOp{
	fabric.OpWrite:       wireWrite,
	fabric.OpWriteImm:    wireWriteImm,
	fabric.OpRead:        wireRead,
	fabric.OpSend:        wireSend,
	fabric.OpCompareSwap: wireCompareSwap,
	fabric.OpFetchAdd:    wireFetchAdd,
}
