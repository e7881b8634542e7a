package slots

import "encoding/binary"

// MaxCarried is how many bytes may go with a request besides its payload.
const MaxCarried = 1024

// What goes with a request (FlagCarry) lies behind its payload, and ends with its size, the
// version of this layout and a byte that makes a message without it unlikely to be taken for
// one with it. The header's length includes all of it. See docs/layout.md, "What goes with a
// request".
const (
	carryTail    = 4
	carryVersion = 1
	carryMagic   = 0xc7
)

// CarrySize returns how much longer a message is with n bytes that go with it, 0 for none.
func CarrySize(n int) int {
	if n == 0 {
		return 0
	}
	return n + carryTail
}

// PutCarried writes what goes with a request behind its payload: b begins there, and has
// room for CarrySize(len(carried)) bytes.
func PutCarried(b, carried []byte) {
	n := copy(b, carried)
	binary.LittleEndian.PutUint16(b[n:], uint16(n))
	b[n+2], b[n+3] = carryVersion, carryMagic
}

// SplitCarried returns how long the payload is of a message with FlagCarry, of which p is
// all that its header counts, and a copy of what goes with it, appended to dst. p may be
// shared memory, and change. False: it is not what PutCarried writes, or of a version that
// this program does not know.
func SplitCarried(p, dst []byte) (length int, carried []byte, ok bool) {
	if len(p) < carryTail {
		return 0, dst, false
	}
	tail := [carryTail]byte(p[len(p)-carryTail:])
	n := int(binary.LittleEndian.Uint16(tail[:]))
	if tail[2] != carryVersion || tail[3] != carryMagic || n < 1 || n > MaxCarried || n > len(p)-carryTail {
		return 0, dst, false
	}
	length = len(p) - carryTail - n
	return length, append(dst, p[length:length+n]...), true
}
