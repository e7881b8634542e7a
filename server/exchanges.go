package server

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

const (
	// maxExchanges is how many exchanges a process has at a time at most.
	maxExchanges = 16 << 10
	// exchangeLease is how long an exchange lasts without a part, besides the time for which parts can
	// be held up on the way: its requester has died, or its node is gone.
	exchangeLease = 15 * time.Second
	// holdLimit is how long a wait for news of a stream is held back before it is
	// answered without any, so that the requester shows that it is there.
	holdLimit = 5 * time.Second
)

// exchanges are those that requesters have with this process: large requests that are
// coming in, large answers that are being fetched, and streams.
type exchanges struct {
	server *Server
	// limit bounds the bytes of all large requests and answers and of the large messages
	// of streams, maxStreams the handlers of streams.
	limit      int64
	maxStreams int

	mu    sync.Mutex
	lease time.Duration
	open  map[uint64]*serverExchange
	bytes int64
	// streams are the handlers of streams that run, unfetched the bytes that others have left for their callers.
	streams   int
	unfetched int64
	// ending are the exchanges that are over with the answers that are being given.
	ending int
	closed bool
	// fewer is closed, and nil again, when there is less of what fetched waits for; nil if nobody wants to know.
	fewer chan struct{}
	// running are stream handlers and goroutines that move parts.
	running sync.WaitGroup
}

// serverExchange is one of them. What it is does not change.
type serverExchange struct {
	id     uint64
	method uint32
	bytes  int64
	lease  *time.Timer
	// block is where the bytes are, if they are in one: the exchange holds it while it is
	// open. Guarded by exchanges.mu.
	block *attach.Block
	// handled: a handler has the bytes, and they count until it returns, whatever becomes of the
	// exchange. Guarded by exchanges.mu.
	handled bool
	// unfetched is what the handler of a stream had left for its caller when it returned. Guarded by exchanges.mu.
	unfetched int64
	// from is who has it with this process, and began when, by CLOCK_MONOTONIC. deadline is that of its request, 0 for
	// none.
	from            caller
	began, deadline int64
	// oneWay: it is a large message for which nobody waits. leftAt is when its caller was said to be gone, 0 if it was not; guarded
	// by exchanges.mu.
	oneWay bool
	leftAt int64
	// due is when its lease ends, by CLOCK_MONOTONIC. Guarded by exchanges.mu.
	due int64

	// One of these.
	request *largeRequest
	answer  *largeAnswer
	stream  *Stream
}

func (x *exchanges) init(s *Server, o *options) {
	x.server, x.limit, x.maxStreams, x.lease = s, o.large, o.streams, exchangeLease
	x.open = make(map[uint64]*serverExchange)
}

// heldUp says for how long parts can be held up on the way by a link that is lost, and back in time, or a core that is replaced:
// their requesters have not been idle.
func (x *exchanges) heldUp(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lease = exchangeLease + d
}

// add enters an exchange that takes so many bytes. It returns false, and why, if there
// is no room for it.
func (x *exchanges) add(e *serverExchange) (ok bool, why string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return false, "the process is stopping"
	case len(x.open) >= maxExchanges:
		return false, "the process has too many exchanges (large messages and streams)"
	case e.stream != nil && x.streams >= x.maxStreams:
		return false, "the process has too many streams (server.Streams)"
	case e.stream != nil && x.unfetched > int64(min(x.maxStreams, maxExchanges))*exchange.Window:
		return false, "the process keeps too much of streams that callers have not fetched (server.Streams)"
	case e.bytes > x.limit-x.bytes:
		return false, noRoom
	}
	for e.id == 0 || x.open[e.id] != nil {
		e.id = randomID()
	}
	e.began = shm.Nanotime()
	x.open[e.id] = e
	x.bytes += e.bytes
	if e.stream != nil {
		x.streams++ // until its handler returns
	}
	e.due = e.began + int64(x.lease)
	e.lease = time.AfterFunc(x.lease, func() { x.expire(e) })
	return true, ""
}

// noRoom is why a large message is refused.
const noRoom = "the process has no room for more large messages now (server.LargeMessages)"

// more counts n bytes more, of a stream's message, if there is room for them.
func (x *exchanges) more(n int64) (ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n > x.limit-x.bytes {
		return false
	}
	x.bytes += n
	return true
}

// less ends what more began.
func (x *exchanges) less(n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bytes -= n
}

// randomID makes a number that no other process can guess: parts are addressed by it.
func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// find returns an exchange of the method and renews its lease; nil if there is none. The
// caller holds the block, if there is one, and is to release it: the exchange may end at
// any time.
func (x *exchanges) find(id uint64, method uint32) (*serverExchange, *attach.Block) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.open[id]
	if e == nil || e.method != method {
		return nil, nil
	}
	x.prolong(e)
	e.block.Hold()
	return e, e.block
}

// keep makes a block that the caller holds the exchange's, if that is open still.
func (x *exchanges) keep(e *serverExchange, b *attach.Block) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open[e.id] != e {
		return false
	}
	e.block = b
	return true
}

// hand notes that a handler gets the bytes of the exchange: handed must follow. False: it is
// over already.
func (x *exchanges) hand(e *serverExchange) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e.handled = x.open[e.id] == e
	x.lessLeft()
	return e.handled
}

// handed forgets an exchange whose handler has returned.
func (x *exchanges) handed(e *serverExchange) {
	x.mu.Lock()
	e.handled = false
	x.mu.Unlock()
	x.remove(e)
}

// remove forgets an exchange, unless a handler has its bytes. It reports whether it was there.
func (x *exchanges) remove(e *serverExchange) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open[e.id] != e || e.handled {
		return false
	}
	delete(x.open, e.id)
	x.bytes -= e.bytes
	x.unfetched -= e.unfetched
	e.lease.Stop()
	e.block.Release()
	x.lessLeft()
	return true
}

// lessLeft tells who waits in fetched. mu is held.
func (x *exchanges) lessLeft() {
	if x.fewer != nil {
		close(x.fewer)
		x.fewer = nil
	}
}

// expire ends an exchange whose requester has not been heard of.
func (x *exchanges) expire(e *serverExchange) {
	if (x.waits(e) || x.overslept(e)) && x.renew(e) {
		return
	}
	if e.stream != nil {
		e.stream.giveUp() // before it is removed: shut waits for waits that are not answered
	}
	x.remove(e)
}

// maxWaiting bounds how long a large request waits for a worker: whoever has sent it may not have been able to say that it is
// not to be executed.
const maxWaiting = time.Hour

// maxLeft is how long one does whose caller has gone, perhaps before it has sent what has a handler run.
const maxLeft = 10 * time.Minute

// waits reports whether all of a large request is there and waits for a worker, and its requester for the outcome: there are
// no parts to come.
func (x *exchanges) waits(e *serverExchange) bool {
	x.mu.Lock()
	left := e.leftAt
	x.mu.Unlock()
	now := shm.Nanotime()
	return (left == 0 || now-left < int64(maxLeft)) && e.request != nil && e.request.complete(e.bytes) && x.server.pool.inside() && x.server.lanes[e.from.lane].Load() != nil &&
		(e.deadline == 0 || now < e.deadline) && now-e.began < int64(maxWaiting)
}

// renew renews the lease of an exchange that is open, and reports whether it is.
func (x *exchanges) renew(e *serverExchange) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.open[e.id] != e || x.closed {
		return false
	}
	x.prolong(e)
	return true
}

// prolong has the lease of an exchange begin anew. mu is held.
func (x *exchanges) prolong(e *serverExchange) {
	e.due = shm.Nanotime() + int64(x.lease)
	e.lease.Reset(x.lease)
}

// tardy is how much later than due a lease ends if it is this process that has stood still: what its requesters have sent
// meanwhile is still to be read.
const tardy = 2 * time.Second

// overslept reports whether the lease of an exchange has ended late, or was prolonged since: by who has read some of that already.
func (x *exchanges) overslept(e *serverExchange) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	late := shm.Nanotime() - e.due
	return late < 0 || late > int64(tardy)
}

// streamOver notes that the handler of a stream has returned, and has left n bytes for its caller, which count until
// the exchange is removed.
func (x *exchanges) streamOver(e *serverExchange, n int) {
	x.mu.Lock()
	x.streams--
	if x.open[e.id] == e {
		e.unfetched = int64(n)
		x.unfetched += e.unfetched
	}
	x.lessLeft()
	x.mu.Unlock()
}

// left returns how many streams and large answers their callers have not fetched to
// the end, and whether handlers of streams run.
func (x *exchanges) left() (n int, running bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.leftLocked()
}

// fetched waits until nothing is left, nor a handler of a stream running, nor a large request on its way to its handler, or one
// of the two contexts ends.
func (x *exchanges) fetched(ctx, base context.Context) error {
	if err := x.server.pool.entered(ctx, base); err != nil {
		return err
	}
	for over := error(nil); ; {
		x.mu.Lock()
		n, running := x.leftLocked()
		for _, e := range x.open {
			if e.request != nil && !e.handled {
				n++
			}
		}
		if n > 0 || running {
			if x.fewer == nil {
				x.fewer = make(chan struct{})
			}
		}
		fewer := x.fewer
		x.mu.Unlock()
		if n == 0 && !running {
			if base.Err() != nil {
				return ErrClosed // which has forgotten what was left
			}
			return nil
		}
		if over != nil {
			return over
		}
		select {
		case <-fewer: // closed by the one that ends
		case <-base.Done():
			return ErrClosed
		case <-ctx.Done():
			over = ctx.Err() // unless nothing is left by now
		}
	}
}

// end forgets an exchange that is over with an answer. What is left counts it until answered is called, when the answer
// is there for its caller.
func (x *exchanges) end(e *serverExchange) {
	x.mu.Lock()
	x.ending++
	x.mu.Unlock()
	x.remove(e)
}

// answered follows end.
func (x *exchanges) answered() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ending--
	x.lessLeft()
}

// leftLocked is left for who holds mu.
func (x *exchanges) leftLocked() (n int, running bool) {
	n = x.ending
	for _, e := range x.open {
		if e.stream != nil || e.answer != nil {
			n++
		}
	}
	return n, x.streams > 0
}

// begin counts a goroutine that uses the shared memory; x.running.Done must follow.
// False: the server is closing.
func (x *exchanges) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return false
	}
	x.running.Add(1)
	return true
}

// shut ends all exchanges, and returns when no goroutine uses the shared memory for
// them any more. The handlers of streams have been told before.
func (x *exchanges) shut() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.running.Wait()
	x.mu.Lock()
	var left []*serverExchange
	for _, e := range x.open {
		e.lease.Stop()
		left = append(left, e)
	}
	clear(x.open)
	x.mu.Unlock()
	for _, e := range left {
		if e.stream != nil {
			e.stream.abandon()
		}
	}
}

// Why parts cannot be done. A part whose bytes are in a region has no more room for the text than 64 bytes.
const (
	unknownExchange = "the process has forgotten it: given up, or idle for too long"
	stopping        = "the process is stopping"
)

// largeAnswer is an answer that is fetched in parts.
type largeAnswer struct {
	buf []byte

	mu sync.Mutex
	// served is how many bytes were given out. The requester asks for each once.
	served uint64
}

// give counts n bytes that were given out and reports whether they were the last.
func (a *largeAnswer) give(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.served += uint64(n)
	return a.served >= uint64(len(a.buf))
}

// offer makes the answer of c, which does not fit its run, one that its requester
// fetches, and writes the first bytes of it. It returns the payload's length.
func (x *exchanges) offer(c *Call) (length int, status slots.Status, text string) {
	e := &serverExchange{from: caller{c.lane, c.header.From}, method: c.header.Method, bytes: int64(len(c.overflow)), answer: &largeAnswer{buf: c.overflow}}
	e.block = c.overflowIn
	e.block.Hold()
	if ok, why := x.add(e); !ok {
		e.block.Release()
		return 0, slots.StatusRemote, "the answer cannot be kept: " + why
	}
	p := c.ring.Payload(c.run)
	n := copy(p[exchange.PartSize:max(exchange.PartSize, int(c.header.Answer))], c.overflow)
	e.answer.give(n)
	a := exchange.PartAnswer{ID: e.id, Credit: uint64(len(c.overflow)), Kind: exchange.KindMore, To: uint16(x.server.id), Length: uint32(n)}
	a.Encode(p)
	return exchange.PartSize + n, slots.StatusOK, ""
}
