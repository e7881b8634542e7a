package slots

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmad/rdmad/shm"
)

// A spill is what the daemon makes of answers that their worker does not take: it
// moves them out of their slots, which others need, into a memfd of the worker's
// own (docs/layout.md, "Spill").
const (
	// SpillMagic spells "RDMADSPL" in the order of the bytes in memory.
	SpillMagic = 0x4c505344414d4452
	// MaxSpill is the largest spill in bytes.
	MaxSpill = 64 << 20

	spillHead   = 16
	spilledHead = 16
)

// Spilled is one answer in a spill.
type Spilled struct {
	// Lane is the id of the lane that it was in, less than MaxLanes.
	Lane uint16
	// Run is where it was. Nothing says that it fits the lane.
	Run Run
	// Header is the decoded header, which was not judged; see Header.CheckAnswer.
	Header Header
	// Payload has Header.Length bytes.
	Payload []byte
}

// SpilledSize is how many bytes an answer with a payload of n bytes takes.
func SpilledSize(n int) int { return spilledHead + HeaderSize + (n+7)&^7 }

// NewSpill begins a spill with room for n bytes.
func NewSpill(n int) []byte {
	b := make([]byte, spillHead, spillHead+n)
	binary.LittleEndian.PutUint64(b[0:], SpillMagic)
	binary.LittleEndian.PutUint32(b[8:], shm.ABIVersion)
	return b
}

// AppendSpilled adds an answer to a spill and returns the longer spill, as append
// does. The payload is the first Header.Length bytes of a.Payload.
func AppendSpilled(spill []byte, a *Spilled) []byte {
	le := binary.LittleEndian
	at := len(spill)
	spill = append(spill, make([]byte, SpilledSize(int(a.Header.Length)))...)
	b := spill[at:]
	le.PutUint16(b[0:], a.Lane)
	le.PutUint16(b[2:], uint16(a.Run.Len))
	le.PutUint32(b[4:], uint32(a.Run.Index))
	le.PutUint64(b[8:], a.Run.Ticket)
	a.Header.Encode(b[spilledHead:])
	copy(b[spilledHead+HeaderSize:], a.Payload[:a.Header.Length])
	le.PutUint32(spill[12:], le.Uint32(spill[12:])+1)
	return spill
}

// ParseSpill returns the answers in a spill, which must be private memory: their
// payloads lie in it. Errors wrap ErrProtocol, or are those of shm.CheckABI.
func ParseSpill(spill []byte) ([]Spilled, error) {
	le := binary.LittleEndian
	if len(spill) < spillHead || le.Uint64(spill) != SpillMagic {
		return nil, fmt.Errorf("%w: %d bytes that are no spill", ErrProtocol, len(spill))
	}
	if err := shm.CheckABI(le.Uint32(spill[8:])); err != nil {
		return nil, err
	}
	n, b := uint64(le.Uint32(spill[12:])), spill[spillHead:]
	if n > uint64(len(b)/SpilledSize(0)) {
		return nil, fmt.Errorf("%w: a spill of %d bytes with %d answers", ErrProtocol, len(spill), n)
	}
	answers := make([]Spilled, n)
	for i := range answers {
		a := &answers[i]
		if len(b) < SpilledSize(0) || !a.Header.Decode(b[spilledHead:]) {
			return nil, fmt.Errorf("%w: spilled answer %d is damaged", ErrProtocol, i)
		}
		a.Lane = le.Uint16(b[0:])
		a.Run = Run{Index: int(le.Uint32(b[4:])), Len: int(le.Uint16(b[2:])), Ticket: le.Uint64(b[8:])}
		if a.Lane >= MaxLanes || uint64(a.Header.Length) > uint64(len(b)-SpilledSize(0)) {
			return nil, fmt.Errorf("%w: spilled answer %d, of lane %d, has %d bytes", ErrProtocol, i, a.Lane, a.Header.Length)
		}
		length := int(a.Header.Length)
		a.Payload = b[spilledHead+HeaderSize:][:length:length]
		b = b[min(SpilledSize(length), len(b)):]
	}
	return answers, nil
}
