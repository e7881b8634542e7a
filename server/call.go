package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Call is one request and its answer. It belongs to the handler's goroutine and
// is valid until the handler returns.
type Call struct {
	server *Server
	ring   *slots.Ring
	run    slots.Run
	header slots.Header
	// answer is the length of the answer, -1 before the handler said it.
	answer int
	ctx    context.Context
	cancel context.CancelFunc
	// lane is where the request came in; regions are those it refers to.
	lane    uint16
	regions callRegions
	// last is the handler of the last request, method its id and in the table in
	// which it was found.
	last   Handler
	method uint32
	in     *map[uint32]Handler
}

// Request returns the request, in shared memory. It is valid until Answer or
// Reply is called, whose bytes are the same.
func (c *Call) Request() []byte {
	return c.ring.Payload(c.run)[int(c.header.Refs)*slots.RefSize : c.header.Length : c.header.Length]
}

// Capacity returns the largest possible answer in bytes: what the caller asked
// room for.
func (c *Call) Capacity() int { return int(c.header.Answer) }

// Answer makes the answer n bytes long and returns them, in shared memory, to
// be filled in place. They overlap Request, from its first byte on unless the
// request refers to regions, and hold its content until overwritten. The last call of Answer or Reply counts. It
// returns nil, and the caller of the request gets ErrTooLarge, when n is
// larger than Capacity.
func (c *Call) Answer(n int) []byte {
	if n < 0 || n > c.Capacity() {
		c.answer = c.Capacity() + 1
		return nil
	}
	c.answer = n
	return c.ring.Payload(c.run)[:n:n]
}

// Reply makes a copy of p the answer. p may be Request or a part of it. The
// error, when p is larger than Capacity, is meant to be returned by the handler.
func (c *Call) Reply(p []byte) error {
	if len(p) > c.Capacity() {
		c.answer = c.Capacity() + 1
		return fmt.Errorf("answer of %d bytes, room for %d", len(p), c.Capacity())
	}
	copy(c.Answer(len(p)), p)
	return nil
}

// Cookie returns the number that the caller sent along.
func (c *Call) Cookie() uint64 { return c.header.Cookie }

// Context ends when the caller's deadline passes, the server closes, Serve's context
// ends or the daemon is gone.
func (c *Call) Context() context.Context {
	if c.ctx == nil {
		c.ctx = c.server.base
		if c.header.Deadline != 0 {
			left := time.Duration(c.header.Deadline - shm.Nanotime())
			c.ctx, c.cancel = context.WithTimeout(c.server.base, left)
		}
	}
	return c.ctx
}

// serve runs the handler of the picked request and writes the answer's header.
func (c *Call) serve() {
	status, text := c.execute()
	if c.cancel != nil {
		c.cancel()
	}
	h := slots.Header{
		Ticket: c.run.Ticket, Run: uint16(c.run.Len), Kind: slots.KindAnswer,
		Method: c.header.Method, Answer: c.header.Answer, Trace: c.header.Trace, Cookie: c.header.Cookie,
		Status: status,
	}
	switch {
	case status != slots.StatusOK:
		h.Flags = slots.FlagError
		h.Length = uint32(copy(c.ring.Payload(c.run), text))
	case c.header.Kind == slots.KindOneWay:
		h.Flags = slots.FlagControl
	default:
		h.Length = uint32(max(c.answer, 0))
	}
	h.Encode(c.ring.Header(c.run))
}

// handler returns the handler of the request, or nil. Requests come in rows of the
// same method.
func (c *Call) handler() Handler {
	if in := c.server.handlers.Load(); c.in != in || c.method != c.header.Method {
		c.last, c.method, c.in = c.server.handler(c.header.Method), c.header.Method, in
	}
	if c.last == nil {
		c.in = nil // it may be there the next time
	}
	return c.last
}

func (c *Call) execute() (status slots.Status, text string) {
	if !c.header.Decode(c.ring.Header(c.run)) || c.header.Ticket != c.run.Ticket {
		return slots.StatusInvalid, "the request was damaged in shared memory"
	}
	if err := c.header.CheckRequest(c.ring.Geometry(), c.run.Len); err != nil {
		return slots.StatusInvalid, err.Error()
	}
	handler := c.handler()
	if handler == nil {
		return slots.StatusNoService, "this process does not serve the method"
	}
	if c.header.Deadline != 0 && shm.Nanotime() > c.header.Deadline {
		return slots.StatusDeadline, "too late at the handler"
	}
	defer func() {
		if p := recover(); p != nil {
			status, text = slots.StatusRemote, fmt.Sprintf("handler panicked: %v", p)
			c.server.logPanic(p, debug.Stack())
		}
	}()
	c.answer = -1
	if c.header.Refs > 0 {
		c.openRegions()
		defer c.closeRegions()
	}
	err := handler(c)
	switch {
	case c.answer > c.Capacity():
		return slots.StatusTooLarge, ""
	case err != nil:
		return slots.StatusRemote, err.Error()
	}
	return slots.StatusOK, ""
}
