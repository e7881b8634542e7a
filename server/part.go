package server

import (
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// part is a picked request that carries a part of an exchange. It can be kept and
// answered later, by any goroutine, once.
type part struct {
	x      *exchanges
	ring   *mapped
	run    slots.Run
	lane   uint16
	header slots.Header
	head   exchange.PartRequest
	// carried is what goes with it.
	carried []byte
	// began is when it was taken, if it is followed by a trace, else 0.
	began int64
	// later: another goroutine than the worker answers, whose batch does not announce it.
	later bool
}

// isPart reports whether the request that h names is a part that wants no handler, and
// whether it opens an exchange. The look at its header decides no more than who looks
// closer, and when.
func (s *Server) isPart(h slots.Hint) (part, opens bool) {
	r := s.lanes[int(h.Lane())%slots.MaxLanes].Load()
	if r == nil || h.Index() >= r.Geometry().Slots {
		return false, false
	}
	run := r.AnswerWord(h.Index()).Run()
	if run < 1 || run > r.Geometry().Slots-h.Index() {
		return false, false
	}
	return isPart(r.HeaderAt(h.Index()), r.PayloadAt(h.Index(), run))
}

func isPart(header, payload []byte) (part, opens bool) {
	if slots.GlanceFlags(header)&slots.FlagPart == 0 {
		return false, false
	}
	op := exchange.GlanceOp(payload, slots.GlanceRefs(header)*slots.RefSize)
	return op != exchange.OpRun, op == exchange.OpOpenCall || op == exchange.OpOpenStream
}

// isRun reports whether the request that h names, which isPart says is none, has the handler of a large one run, whose
// bytes have come in parts before. Like isPart it is a look only.
func (s *Server) isRun(h slots.Hint) bool {
	r := s.lanes[int(h.Lane())%slots.MaxLanes].Load()
	return r != nil && h.Index() < r.Geometry().Slots && slots.GlanceFlags(r.HeaderAt(h.Index()))&slots.FlagPart != 0
}

// serve deals with the picked request of c, a part. It is quick: what takes long goes
// on in a goroutine, or is kept until there is something to say.
func (x *exchanges) serve(c *Call) {
	p := &part{x: x, ring: c.ring, run: c.run, lane: c.lane}
	if !p.header.Decode(c.ring.Header(c.run)) || p.header.Ticket != c.run.Ticket {
		p.fail(slots.StatusInvalid, "the request was damaged in shared memory")
		return
	}
	if err := p.header.CheckRequest(c.ring.Geometry(), c.run.Len); err != nil {
		p.fail(slots.StatusInvalid, err.Error())
		return
	}
	if slots.IsMark(p.header.Trace) {
		p.began = shm.Nanotime()
	}
	if p.header.Flags&slots.FlagCarry != 0 {
		var ok bool
		if p.carried, ok = takeCarried(c.ring.Payload(c.run), &p.header, nil); !ok {
			p.fail(slots.StatusInvalid, badCarried)
			return
		}
	}
	data, err := p.head.Decode(p.payload())
	if err != nil {
		p.fail(slots.StatusInvalid, err.Error())
		return
	}
	if p.header.Deadline != 0 && shm.Nanotime() > p.header.Deadline {
		p.fail(slots.StatusDeadline, "too late at the handler's process")
		return
	}
	switch p.head.Op {
	case exchange.OpOpenCall:
		x.openCall(p, data)
		return
	case exchange.OpOpenStream:
		x.openStream(p, data)
		return
	}
	e, b := x.find(p.head.ID, p.header.Method)
	defer b.Release()
	switch {
	case e == nil && p.head.Op == exchange.OpClose:
		p.ack(nil)
	case e == nil:
		p.fail(slots.StatusNotExecuted, unknownExchange)
	case p.head.Op == exchange.OpClose:
		x.close(e)
		p.ack(nil)
	case p.head.Op == exchange.OpPush && e.request != nil:
		x.push(p, e, b, data)
	case p.head.Op == exchange.OpPull && e.answer != nil:
		x.pull(p, e, b)
	case p.head.Op == exchange.OpSend && e.stream != nil:
		e.stream.received(p, data)
	case p.head.Op == exchange.OpWait && e.stream != nil:
		e.stream.hold(p)
	default:
		p.fail(slots.StatusInvalid, fmt.Sprintf("operation %d is not for this exchange", p.head.Op))
	}
}

// openCall begins a large request.
func (x *exchanges) openCall(p *part, data []byte) {
	total := p.head.Credit
	if total < 1 || total > exchange.MaxMessage || uint64(len(data)) > total {
		p.fail(slots.StatusInvalid, fmt.Sprintf("a request of %d bytes, at most %d", total, exchange.MaxMessage))
		return
	}
	r := &largeRequest{}
	e := &serverExchange{
		from: caller{p.lane, p.header.From}, method: p.header.Method, bytes: int64(total), request: r, deadline: p.header.Deadline,
		oneWay: p.head.Flags&exchange.FlagOneWay != 0,
	}
	// Entered before the memory is taken, with e.request not yet usable.
	if ok, why := x.add(e); !ok {
		p.fail(slots.StatusNotExecuted, why)
		return
	}
	if b := x.kept(int(total)); b != nil || total < attach.BlockFrom {
		x.opened(p, e, b, data)
		return
	}
	// The daemon is asked for a block: others wait behind this part meanwhile.
	p.apart(func() { x.opened(p, e, x.take(int(total)), data) })
}

// opened gives a large request its memory, and answers the part that has begun it, with the
// first of its bytes.
func (x *exchanges) opened(p *part, e *serverExchange, b *attach.Block, data []byte) {
	b.Hold() // also if the exchange ends while its bytes are copied
	defer b.Release()
	var buf []byte
	if b == nil {
		buf = make([]byte, e.bytes)
	} else if !x.keep(e, b) {
		b.Release()
		p.fail(slots.StatusNotExecuted, unknownExchange)
		return
	} else {
		buf = b.Mem()[:e.bytes:e.bytes]
	}
	e.request.begin(buf, copy(buf, data))
	p.answer(&exchange.PartAnswer{ID: e.id, Credit: uint64(e.bytes), Kind: exchange.KindOpened}, nil, nil)
}

// takeLarge makes the request that has come in parts the one of c, whose request only
// says that it is to run.
func (c *Call) takeLarge() (status slots.Status, text string) {
	h, err := c.partHead()
	if err != nil {
		return slots.StatusInvalid, err.Error()
	}
	x := &c.server.exchanges
	e, b := x.find(h.ID, c.header.Method)
	if e == nil || e.request == nil || h.Op != exchange.OpRun {
		b.Release()
		return slots.StatusNotExecuted, unknownExchange
	}
	buf, ok := e.request.take()
	if !ok {
		b.Release()
		return slots.StatusInvalid, "a request that is not complete"
	}
	if !x.hand(e) {
		b.Release()
		return slots.StatusNotExecuted, unknownExchange
	}
	// The block stays the handler's, should the exchange end before it returns.
	c.large, c.largeIn, c.blocks = buf, e, append(c.blocks, b)
	return slots.StatusOK, ""
}

// partHead is the header of the part that c is.
func (c *Call) partHead() (h exchange.PartRequest, err error) {
	_, err = h.Decode(c.ring.Payload(c.run)[int(c.header.Refs)*slots.RefSize : c.header.Length])
	return h, err
}

// dropLarge forgets the request that has come in parts, if the one of c says that it is to run, and
// it is not.
func (c *Call) dropLarge() {
	if c.header.Flags&slots.FlagPart == 0 {
		return
	}
	h, err := c.partHead()
	if err != nil {
		return
	}
	x := &c.server.exchanges
	e, b := x.find(h.ID, c.header.Method)
	b.Release()
	if e != nil && e.request != nil {
		x.remove(e)
	}
}

// push takes a part of a large request.
func (x *exchanges) push(p *part, e *serverExchange, b *attach.Block, data []byte) {
	to := e.request.reserve(p.head.Offset, p.head.Length)
	if to == nil {
		p.fail(slots.StatusInvalid, "bytes beyond the request, or twice")
		return
	}
	if p.head.Flags&exchange.FlagRegion == 0 {
		copy(to, data)
		e.request.arrived(p.head.Length)
		p.ack(e)
		return
	}
	p.elsewhere(b, func(c *Call) {
		var err error
		if from := c.Region(c.NumRegions() - 1); b != nil {
			err = from.ReadInto(blockRef(b, p.head.Offset, len(to)), 0)
		} else {
			_, err = from.ReadAt(to, 0)
		}
		if err != nil {
			e.request.failed(p.head.Offset, p.head.Length)
			p.notMoved(err)
			return
		}
		e.request.arrived(p.head.Length)
		p.ack(e)
	})
}

// pull gives out a part of a large answer.
func (x *exchanges) pull(p *part, e *serverExchange, b *attach.Block) {
	a, off := e.answer, p.head.Offset
	if p.head.Length < 1 || !slots.Inside(off, uint64(p.head.Length), uint64(len(a.buf))) {
		p.fail(slots.StatusInvalid, "bytes beyond the answer")
		return
	}
	from := a.buf[off : off+uint64(p.head.Length)]
	give := func(n int, data []byte) {
		last := a.give(n)
		if last {
			x.end(e)
		}
		p.answer(&exchange.PartAnswer{
			ID: e.id, Offset: off, Kind: exchange.KindData, Flags: p.head.Flags & exchange.FlagRegion, Length: uint32(n),
		}, data, nil)
		if last {
			x.answered()
		}
	}
	if p.head.Flags&exchange.FlagRegion == 0 {
		from = from[:min(len(from), p.room())]
		give(len(from), from)
		return
	}
	p.elsewhere(b, func(c *Call) {
		var err error
		if to := c.Region(c.NumRegions() - 1); b != nil {
			err = to.WriteFrom(blockRef(b, off, len(from)), 0)
		} else {
			_, err = to.WriteAt(from, 0)
		}
		if err != nil {
			p.notMoved(err)
			return
		}
		give(len(from), nil)
	})
}

// notMoved answers a part whose bytes could not be moved, and do not count. If what was
// allowed to be done with the region was lost, for example because a daemon has been
// replaced, the requester allows it anew.
func (p *part) notMoved(err error) {
	status, why := slots.StatusNotExecuted, err
	if errors.Is(err, ErrLost) {
		status = slots.StatusNotExported
	}
	if r := (*RegionError)(nil); errors.As(err, &r) {
		why = r.Err // there is no room for where in the region
	}
	p.fail(status, "its bytes were not moved: "+why.Error())
}

// close ends an exchange that its requester gives up.
func (x *exchanges) close(e *serverExchange) {
	if e.stream != nil {
		e.stream.giveUp()
		return // it is removed when its handler has returned
	}
	x.remove(e)
}

// elsewhere calls f, on a goroutine of its own, with the regions that the part refers
// to. f answers the part. The block is held meanwhile.
func (p *part) elsewhere(b *attach.Block, f func(c *Call)) {
	b.Hold()
	started := p.apart(func() {
		defer b.Release()
		c := &Call{server: p.x.server, ring: p.ring, run: p.run, lane: p.lane, header: p.header}
		c.openRegions()
		f(c)
	})
	if !started {
		b.Release()
	}
}

// apart calls f, which answers the part, on a goroutine of its own. False: the server is
// closing, and the part has been answered.
func (p *part) apart(f func()) bool {
	if !p.x.begin() {
		p.fail(slots.StatusNotExecuted, stopping)
		return false
	}
	p.keep()
	go func() {
		defer p.x.running.Done()
		f()
	}()
	return true
}

// keep has the part answered later, by another goroutine than the worker.
func (p *part) keep() {
	p.later = true
	p.x.server.pool.keep(p.ring)
}

// payload is what follows the references to regions.
func (p *part) payload() []byte {
	return p.ring.Payload(p.run)[int(p.header.Refs)*slots.RefSize : p.header.Length : p.header.Length]
}

// room is how many bytes fit an answer besides its header.
func (p *part) room() int {
	return max(0, int(p.header.Answer)-exchange.PartSize)
}

// ack answers a part that there is nothing else to say to.
func (p *part) ack(e *serverExchange) {
	a := exchange.PartAnswer{ID: p.head.ID, Kind: exchange.KindAck}
	if e != nil && e.request != nil {
		a.Credit = uint64(len(e.request.buf))
	}
	p.answer(&a, nil, nil)
}

// answer answers the part, with data and what follows it. Both must fit its room.
func (p *part) answer(a *exchange.PartAnswer, data, rest []byte) {
	to := p.ring.Payload(p.run)
	n := exchange.PartSize
	n += copy(to[n:], data)
	n += copy(to[n:], rest)
	a.To = uint16(p.x.server.id)
	a.Encode(to)
	if p.header.Kind == slots.KindOneWay {
		p.finish(slots.Header{Flags: slots.FlagControl})
		return
	}
	h := slots.Header{Flags: slots.FlagPart, Length: uint32(n)}
	if a.Flags&exchange.FlagRegion != 0 {
		h.Flags |= slots.FlagControl // the data has gone another way
	}
	p.finish(h)
}

// fail answers the part with an error.
func (p *part) fail(status slots.Status, text string) {
	n := copy(p.ring.Payload(p.run), text)
	p.finish(slots.Header{Flags: slots.FlagError, Status: status, Length: uint32(n)})
}

func (p *part) finish(h slots.Header) {
	h.Ticket, h.Run, h.Kind = p.run.Ticket, uint16(p.run.Len), slots.KindAnswer
	h.Method, h.Answer, h.Trace, h.Cookie = p.header.Method, p.header.Answer, p.header.Trace, p.header.Cookie
	if p.began != 0 {
		h.SetHandled(p.began, shm.Nanotime())
	}
	h.Encode(p.ring.Header(p.run))
	p.ring.Finish(p.run, p.x.server.id)
	if p.later {
		p.x.server.pool.announce(slots.MakeHint(p.lane, p.run.Index, p.run.Ticket))
		p.x.server.pool.drop(p.ring)
	}
}
