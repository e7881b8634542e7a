package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

// part is a request that carries a part of an exchange: it goes to the process that has
// the exchange, by the lanes to its node that the exchange began with.
type part struct {
	head exchange.PartRequest
	data []byte
	// to is the process; 0 for any, which then has the exchange.
	to uint16
	// room is how many bytes of an answer there is to be room for, besides its
	// header.
	room int
	// region is where the bytes are instead, or are to go, if head says so.
	region RegionRef
	// noWait: ErrBackpressure where there is no room at once.
	noWait bool
}

// partRoom is the room for an answer that is expected to be fetched in parts, or that
// of a wait for a stream's next message: one slot of 4 KiB.
const partRoom = 4096 - slots.HeaderSize

// writePart claims room for a part and fills it in. The caller holds the gate.
func (m *Method) writePart(ctx context.Context, r *route, p *part, d *draft) error {
	size, refs := exchange.PartSize+len(p.data), 0
	if p.region.region != nil {
		refs = 1
		size += slots.RefSize
	}
	if ctx.Err() != nil {
		return m.late(ctx, false)
	}
	v := *m
	v.opts = callOptions{answer: exchange.PartSize + p.room, direct: true, pinned: m.opts.pinned, pin: m.opts.pin}
	if p.head.Op == exchange.OpRun || p.head.Op == exchange.OpOpenStream {
		v.opts.carry = m.opts.carry
	}
	v.opts.noWait = m.opts.noWait && p.head.ID == 0 || p.noWait // what has begun goes on
	d.extra = v.extra(r, size)
	s, run, answer, err := v.pick(r, size, d.extra, false)
	if err != nil {
		return err
	}
	large := int64(run)
	switch p.head.Op {
	case exchange.OpOpenStream, exchange.OpSend, exchange.OpWait:
		large = 0 // a stream's messages may be small, and in a hurry
	}
	d.patient = p.head.Op == exchange.OpWait
	m.conn.pace.own.Add(large) // before the claim: see alone
	if err = v.claimIn(ctx, r, s, run, d); err != nil {
		m.conn.pace.own.Add(-large)
		if ctx.Err() != nil {
			return m.late(ctx, false)
		}
		return fmt.Errorf("%s: %w: %w", m.name, ErrNotExecuted, err)
	}
	d.route = r
	d.h.Ticket, d.h.Run, d.h.Length = d.u.Ticket, uint16(d.u.Len), uint32(size+d.extra)
	d.h.Method, d.h.Answer, d.h.To = r.method, uint32(answer), p.to
	d.h.From = uint16(m.conn.id)
	d.h.Flags, d.h.Refs = slots.FlagPart, uint8(refs)
	d.h.Deadline = deadline(ctx)
	b := d.l.ring.Payload(d.u)
	if d.extra > 0 {
		d.h.Flags |= slots.FlagCarry
		slots.PutCarried(b[size:], v.opts.carry)
	}
	if refs > 0 {
		d.h.Flags |= slots.FlagRefs
		p.region.ref.Encode(b)
		b = b[slots.RefSize:]
	}
	if p.head.Op != exchange.OpPull && p.head.Flags&exchange.FlagRegion == 0 {
		p.head.Length = uint32(len(p.data))
	}
	p.head.Encode(b)
	copy(b[exchange.PartSize:], p.data)
	return nil
}

// sendPart publishes a part. The caller holds the gate.
func (m *Method) sendPart(ctx context.Context, r *route, p *part, to *sink) (*Future, error) {
	d := draft{receipt: to.receipt}
	if err := m.writePart(ctx, r, p, &d); err != nil {
		return nil, err
	}
	f, err := m.commit(&d, nil, to)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", m.name, ErrNotExecuted, err)
	}
	return f, nil
}

// awaitPart waits for the answer to a part that was sent to be read in place and calls
// use with it; the bytes are in the slots, or in the region. The caller holds the gate.
func (m *Method) awaitPart(ctx context.Context, f *Future, use func(a *exchange.PartAnswer, data, rest []byte) error) error {
	f, err := m.inPlace(ctx, f)
	if err != nil {
		return err
	}
	defer f.letGo()
	var a exchange.PartAnswer
	data, rest, err := a.Decode(f.res)
	if err != nil {
		return fmt.Errorf("%s: %w: the answer to a part was damaged: %w", m.name, ErrMaybeExecuted, err)
	}
	return use(&a, data, rest)
}

// part sends a part and calls use with its answer.
func (m *Method) part(ctx context.Context, r *route, p *part, use func(a *exchange.PartAnswer, data, rest []byte) error) error {
	if !m.conn.gate.enter() {
		return m.closed()
	}
	defer m.conn.gate.leave()
	f, err := m.sendPart(ctx, r, p, &sink{inPlace: true, part: true})
	if err != nil {
		return err
	}
	return m.awaitPart(ctx, f, use)
}

// closeTimeout bounds how long it may take to find room for telling a process that an
// exchange is given up. It notices anyway, later. A stream's own wait for news has slots for up to half of that, if there are no others.
const closeTimeout = 10 * time.Second

// closeExchange tells the process that nobody wants the exchange any more. It does not wait: where there is no
// room, a goroutine does.
func (m *Method) closeExchange(r *route, id uint64, to uint16) {
	c := m.conn
	if !c.gate.enter() {
		return
	}
	if !errors.Is(m.sendClose(c.life, r, id, to, true), ErrBackpressure) {
		c.gate.leave()
		return
	}
	go func() {
		defer c.gate.leave()
		ctx, cancel := context.WithTimeout(c.life, closeTimeout)
		defer cancel()
		_ = m.sendClose(ctx, r, id, to, false)
	}()
}

// sendClose is closeExchange for those who hold the gate; with noWait it returns ErrBackpressure where there is no room at once.
func (m *Method) sendClose(ctx context.Context, r *route, id uint64, to uint16, noWait bool) error {
	var d draft
	if err := m.writePart(ctx, r, &part{head: exchange.PartRequest{ID: id, Op: exchange.OpClose}, to: to, noWait: noWait}, &d); err != nil {
		return err
	}
	d.h.Kind, d.h.Deadline = slots.KindOneWay, 0
	d.h.Encode(d.l.ring.Header(d.u))
	_ = d.l.publish(d.u, false) // without it the exchange ends later
	return nil
}

// currentRoute returns where the method's requests go.
func (m *Method) currentRoute(ctx context.Context) (*route, error) {
	if r := m.route.p.Load(); r != nil {
		return r, nil
	}
	return m.resolve(ctx, nil, preference{})
}
