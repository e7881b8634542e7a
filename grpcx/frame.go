package grpcx

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What a frame, which is one message of an rdmad stream, has. The parts follow the
// byte with these flags in this order; flagLast has no part.
const (
	// flagHead announces a head: a length of 4 bytes, and the block.
	flagHead = 1 << iota
	// flagStatus announces a status: a length of 4 bytes, and the block.
	flagStatus
	// flagMessage announces a message: all that follows, which may be nothing.
	flagMessage
	// flagLast says that the caller sends no more.
	flagLast

	flagsKnown = flagHead | flagStatus | flagMessage | flagLast
)

// maxBlock is the largest head or status in bytes: metadata, and of a status its
// message and details.
const maxBlock = 64 << 10

// errFrame is wrapped by the errors of what no correct peer sends.
var errFrame = errors.New("malformed frame")

// frame is a frame that was taken apart. The parts lie in the message it came in.
type frame struct {
	flags   byte
	head    []byte
	status  []byte
	message []byte
}

// has reports whether the frame has the part.
func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// parseFrame takes a message of a stream apart. The blocks are not looked into.
func parseFrame(b []byte) (f frame, err error) {
	if len(b) == 0 {
		return f, fmt.Errorf("%w: empty", errFrame)
	}
	f.flags, b = b[0], b[1:]
	if f.flags&^flagsKnown != 0 || f.flags == 0 {
		return f, fmt.Errorf("%w: flags %#x", errFrame, f.flags)
	}
	if f.has(flagHead) {
		if f.head, b, err = cutBlock(b); err != nil {
			return f, err
		}
	}
	if f.has(flagStatus) {
		if f.status, b, err = cutBlock(b); err != nil {
			return f, err
		}
	}
	if f.has(flagMessage) {
		f.message = b
	} else if len(b) > 0 {
		return f, fmt.Errorf("%w: %d bytes that belong to nothing", errFrame, len(b))
	}
	return f, nil
}

func cutBlock(b []byte) (block, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, fmt.Errorf("%w: it ends in the length of a block", errFrame)
	}
	n := binary.LittleEndian.Uint32(b)
	b = b[4:]
	if n > maxBlock || int(n) > len(b) {
		return nil, nil, fmt.Errorf("%w: a block of %d bytes where %d are left, at most %d", errFrame, n, len(b), maxBlock)
	}
	return b[:n], b[n:], nil
}

// appendBlock appends a block that fill appends the content of. It returns b as it
// was, and an error, if the block is too large or fill fails.
func appendBlock(b []byte, fill func([]byte) ([]byte, error)) ([]byte, error) {
	start := len(b)
	long, err := fill(append(b, 0, 0, 0, 0))
	if err != nil {
		return b[:start], err
	}
	n := len(long) - start - 4
	if n > maxBlock {
		return b[:start], fmt.Errorf("%d bytes of metadata or status, at most %d", n, maxBlock)
	}
	binary.LittleEndian.PutUint32(long[start:], uint32(n))
	return long, nil
}

// cursor reads a block that was made a string, so that what it holds need not be
// copied one by one. After the first thing that is not there it is bad.
type cursor struct {
	s   string
	bad bool
}

// number reads an unsigned number of at most limit.
func (c *cursor) number(limit uint64) uint64 {
	var n uint64
	for i := 0; i < len(c.s) && i < binary.MaxVarintLen64; i++ {
		n |= uint64(c.s[i]&0x7f) << (7 * i)
		if c.s[i] < 0x80 {
			c.s = c.s[i+1:]
			if n > limit {
				c.bad = true
				return 0
			}
			return n
		}
	}
	c.bad = true
	return 0
}

// text reads a string of at most limit bytes with its length before it.
func (c *cursor) text(limit int) string {
	n := int(c.number(uint64(limit)))
	if c.bad || n > len(c.s) {
		c.bad = true
		return ""
	}
	s := c.s[:n]
	c.s = c.s[n:]
	return s
}

// end returns an error if something was missing, or something is left.
func (c *cursor) end(what string) error {
	if c.bad || c.s != "" {
		return fmt.Errorf("%w: %s", errFrame, what)
	}
	return nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
