package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Call is one request and its answer. It belongs to the handler's goroutine and
// is valid until the handler returns. After that it has no request and takes no
// answer, until its worker takes the next request, which it then stands for: using it
// at that time is a data race with the other request's handler, whose answer it can
// change. Under the race detector no Call is used twice.
type Call struct {
	server *Server
	batch  *batch // of the worker that it belongs to
	// inline: it is handled on the thread of the core's agent; see Inline.
	inline bool
	// open names the request from the start of the handler to its return, and is 0 then.
	open   atomic.Uint64
	ring   *mapped
	run    slots.Run
	header slots.Header
	// answer is the length of the answer, -1 before the handler said it; see tooLarge.
	answer int
	// began is when its worker took it, if it is followed by a trace, else 0.
	began  int64
	ctx    context.Context
	cancel context.CancelFunc
	// ending makes callerGone and Context take turns. giveUp ends ctx because the caller
	// has ended, nil before Context is called; gone is the request of which it is known,
	// 0 for none.
	ending sync.Mutex
	giveUp context.CancelCauseFunc
	gone   atomic.Uint64
	// lane is where the request came in; regions are those it refers to.
	lane    uint16
	regions callRegions
	// last is the handler of the last request, method its id and in the table in
	// which it was found.
	last   handlers
	method uint32
	in     *map[uint32]handlers
	// carried is what goes with the request; its memory is used again.
	carried []byte
	// large is the request if it came in parts; overflow is the answer if it does not
	// fit the run.
	large, overflow []byte
	// largeIn is where large is accounted for.
	largeIn *serverExchange
	// blocks are those that the call holds: the request's, and those of answers, of which
	// overflowIn is the one that overflow is in, nil if that is in memory of its own.
	blocks     []*attach.Block
	overflowIn *attach.Block
	// panicked is what the handler has panicked with, until it is logged.
	panicked *panicked
	// scratch is where answers are written that are dropped and do not fit the
	// slots.
	scratch []byte
}

// Request returns the request, in shared memory. It is valid until Answer or
// Reply is called, whose bytes are the same, and nil when the handler has returned. A
// request that fits no run of slots is in memory of this process, and valid until the
// handler returns.
func (c *Call) Request() []byte {
	if c.open.Load() == 0 {
		return nil
	}
	if c.large != nil {
		return c.large
	}
	return c.ring.Payload(c.run)[int(c.header.Refs)*slots.RefSize : c.header.Length : c.header.Length]
}

// Capacity returns how many bytes of an answer fit the slots of the request: what the
// caller asked room for. Larger answers are in memory of this process and fetched by the
// caller in parts, unless it has asked for answers in place only. If the caller wants no answer
// it is at least the size that the method declared, as if the caller wanted one. It is 0
// when the handler has returned.
func (c *Call) Capacity() int {
	if c.open.Load() == 0 {
		return 0
	}
	n := int(c.header.Answer)
	if !c.drops() {
		return n
	}
	if c.last.answer == attach.AnswerLikeRequest {
		return max(n, len(c.Request()))
	}
	return max(n, c.last.answer)
}

// drops reports whether the caller wants no answer, only to know that the handler
// has returned, or not even that.
func (c *Call) drops() bool {
	return c.header.Kind == slots.KindOneWay || c.header.Flags&slots.FlagReceipt != 0
}

// Answer makes the answer n bytes long and returns them, in shared memory, to
// be filled in place. They overlap Request, from its first byte on unless the
// request refers to regions, and hold its content until overwritten; only a request that
// fits no run of slots stays as it is. An answer larger than Capacity gets memory of this
// process, of any content, valid until the handler returns. The last call of Answer or Reply counts.
// It returns nil, and the caller of the request gets ErrTooLarge, when n is larger than
// Capacity and the caller wants answers in place only, or than 1 GiB. When the
// handler has returned it returns nil and does nothing.
//
// The answer to a message that wants none (client's Post and PostConfirmed) is
// dropped: Answer returns bytes to fill in all the same, whatever Capacity is, so that
// a handler of calls needs no case of its own, and nil only if n is more than any
// message can have.
func (c *Call) Answer(n int) []byte {
	if c.open.Load() == 0 {
		return nil
	}
	if c.drops() {
		return c.dropped(n)
	}
	c.overflow = nil
	if n > c.Capacity() && n <= exchange.MaxMessage && c.header.Flags&slots.FlagInPlace == 0 {
		c.answer, c.overflow = n, c.overflowRoom(n)
		return c.overflow
	}
	if n < 0 || n > c.Capacity() {
		c.answer = tooLarge
		return nil
	}
	c.answer = n
	return c.ring.Payload(c.run)[:n:n]
}

// Reply makes a copy of p the answer. p may be Request or a part of it. If the answer is
// dropped nothing is copied, and there is no error. Errors: ErrTooLarge, when Answer has no
// memory for it, which is meant to be returned by the handler; ErrExpired, when the handler
// has returned.
func (c *Call) Reply(p []byte) error {
	if c.open.Load() == 0 {
		return ErrExpired
	}
	if c.drops() {
		return nil
	}
	to := c.Answer(len(p))
	if c.answer == tooLarge {
		return fmt.Errorf("server: %w: an answer of %d bytes, room for %d", ErrTooLarge, len(p), c.Capacity())
	}
	copy(to, p)
	return nil
}

// tooLarge, as the length of an answer, says that it was refused.
const tooLarge = -2

// keptScratch is how much memory for dropped answers a worker keeps, in bytes.
const keptScratch = 64 << 10

// dropped returns n bytes for an answer that nobody gets. Like those of an answer
// they start with the request, but for one that has come in parts, which stays as it is.
func (c *Call) dropped(n int) []byte {
	p := c.ring.Payload(c.run)
	switch {
	case n < 0 || n > exchange.MaxMessage:
		return nil
	case n <= len(p):
		return p[:n:n]
	case n > keptScratch:
		return append(make([]byte, 0, n), p...)[:n]
	}
	if len(c.scratch) < n {
		c.scratch = make([]byte, keptScratch)
	}
	copy(c.scratch, p)
	return c.scratch[:n:n]
}

// Cookie returns the number that the caller sent along, and 0 when the handler has
// returned. The client package sends 0: it is for programs that write slots themselves (docs/layout.md).
func (c *Call) Cookie() uint64 {
	if c.open.Load() == 0 {
		return 0
	}
	return c.header.Cookie
}

// over is the context of calls whose handler has returned.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Context ends when the caller's deadline passes, the caller's process has ended (the
// cause is ErrGivenUp then), the handler has returned, the server closes, Serve's context
// ends or the daemon is gone. That a caller has ended is known soon, but not for certain:
// a message between nodes may be lost. A handler of a one-way message, to which nobody
// waits for an answer, is not told.
func (c *Call) Context() context.Context {
	if c.open.Load() == 0 {
		return over
	}
	if c.ctx == nil {
		c.makeContext()
	}
	return c.ctx
}

// sayPanic logs the panic of the handler, if there was one. It may take long: the request is finished, and its caller does not
// wait for it.
func (c *Call) sayPanic() {
	if c.panicked != nil {
		c.server.said.sayPanic(c.panicked)
		c.panicked = nil
	}
}

// serve runs the handler of the picked request and writes the answer's header.
func (c *Call) serve() {
	status, text := c.execute()
	c.conclude(status, text)
}

// conclude ends the call and writes the answer's header.
func (c *Call) conclude(status slots.Status, text string) {
	length, flags := max(c.answer, 0), slots.Flags(0)
	if c.overflow != nil && status == slots.StatusOK && c.header.Kind == slots.KindRequest {
		if length, status, text = c.server.exchanges.offer(c); status == slots.StatusOK {
			flags = slots.FlagPart
		}
	}
	if c.largeIn != nil {
		c.server.exchanges.handed(c.largeIn)
		c.large, c.largeIn = nil, nil
	}
	c.overflow = nil
	c.releaseBlocks()
	if c.cancel != nil || c.gone.Load() != 0 {
		c.noMore()
	}
	// Field by field: a literal is made elsewhere and copied, for which the processor waits
	// until the fields are stored.
	var h slots.Header
	h.Ticket, h.Run, h.Kind, h.Status = c.run.Ticket, uint16(c.run.Len), slots.KindAnswer, status
	h.Method, h.Answer, h.Trace, h.Cookie = c.header.Method, c.header.Answer, c.header.Trace, c.header.Cookie
	switch {
	case status != slots.StatusOK:
		h.Flags = slots.FlagError
		h.Length = uint32(copy(c.ring.Payload(c.run), text))
	case c.drops():
		h.Flags = slots.FlagControl
	default:
		h.Flags, h.Length = flags, uint32(length)
	}
	if c.began != 0 {
		h.SetHandled(c.began, shm.Nanotime())
	}
	faultpoint.Here("conclude.before_header")
	h.Encode(c.ring.Header(c.run))
	faultpoint.Here("conclude.after_header")
}

// handler returns the handler of the request, or nil. Requests come in rows of the
// same method.
func (c *Call) handler() Handler {
	if in := c.server.handlers.Load(); c.in != in || c.method != c.header.Method {
		if c.inline {
			c.last = (*in)[c.header.Method].onAgent()
		} else {
			c.last = c.server.handlersOf(c.header.Method)
		}
		c.method, c.in = c.header.Method, in
	}
	if c.last.call == nil {
		c.in = nil // it may be there the next time
	}
	return c.last.call
}

func (c *Call) execute() (status slots.Status, text string) {
	c.began = 0
	if !c.header.Decode(c.ring.Header(c.run)) || c.header.Ticket != c.run.Ticket {
		return slots.StatusInvalid, "the request was damaged in shared memory"
	}
	if err := c.header.CheckRequest(c.ring.Geometry(), c.run.Len); err != nil {
		return slots.StatusInvalid, err.Error()
	}
	// The monitor has a part if no worker takes anything any more; see takeParts.
	closing := c.batch == nil && !c.inline && c.header.Flags&slots.FlagPart != 0 && c.server.pool.closed.Load()
	if c.inline && (c.header.Flags&slots.FlagPart != 0 || c.header.Refs > 0) || !c.inline && c.batch == nil && !closing {
		// The agent, or the monitor, has seen another header. With this one the agent would wait for itself, and
		// the monitor would be inside a handler while nobody sees to the workers.
		return slots.StatusInvalid, "the request was damaged in shared memory"
	}
	if slots.IsMark(c.header.Trace) {
		c.began = shm.Nanotime()
	}
	c.carried = c.carried[:0]
	if c.header.Flags&slots.FlagCarry != 0 {
		var ok bool
		if c.carried, ok = takeCarried(c.ring.Payload(c.run), &c.header, c.carried); !ok {
			return slots.StatusInvalid, badCarried
		}
	}
	if closing {
		c.dropLarge()
		return slots.StatusNotExecuted, stopping
	}
	handler := c.handler()
	if handler == nil {
		c.dropLarge()
		return slots.StatusNoService, "this process does not serve the method"
	}
	if c.header.Deadline != 0 && shm.Nanotime() > c.header.Deadline {
		c.dropLarge()
		return slots.StatusDeadline, "too late at the handler"
	}
	return c.handle(handler)
}

// handle runs the handler. It is a function of its own with few returns so that the compiler
// makes its deferred functions part of it: each request would pay for a list of them otherwise.
func (c *Call) handle(handler Handler) (status slots.Status, text string) {
	inside := false // the handler
	defer func() {
		shm.StoreRelease(&c.open, 0)
		switch p := recover(); {
		case p != nil:
			status, text = slots.StatusRemote, fmt.Sprintf("handler panicked: %v", p)
			c.panicked = &panicked{p, debug.Stack()}
		case inside:
			// It called runtime.Goexit: nothing of this goroutine runs any more
			// but deferred functions such as this one.
			c.conclude(slots.StatusRemote, "handler exited")
			c.server.pool.succeed(c)
		}
	}()
	c.answer = -1
	shm.StoreRelease(&c.open, openName(c.lane, c.run.Index, c.run.Ticket))
	if c.header.Flags&slots.FlagPart != 0 {
		if status, text = c.takeLarge(); status != slots.StatusOK {
			return status, text
		}
	}
	if c.header.Refs > 0 {
		c.openRegions()
		defer c.closeRegions()
	}
	inside = true
	faultpoint.Here("handler.before")
	err := handler(c)
	faultpoint.Here("handler.after")
	inside = false
	switch {
	case c.answer == tooLarge:
		status = slots.StatusTooLarge
	case err != nil:
		status, text = slots.StatusRemote, err.Error()
	}
	return status, text
}
