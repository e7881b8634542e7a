package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

// MaxMessage is the largest request, answer or message of a stream, in bytes.
const MaxMessage = exchange.MaxMessage

// noLarger is the remedy of a message of more than MaxMessage bytes.
const noLarger = "no message is larger; send several, or a stream"

// isLarge reports whether a request of n bytes goes in parts.
func (m *Method) isLarge(n int) bool {
	if m.opts.ordered || m.opts.limited {
		return false // they use one lane each, and no other way
	}
	if m.opts.split {
		return n > 0
	}
	// Without a route it is known later: claim says ErrTooLarge then.
	r := m.route.p.Load()
	return r != nil && n > r.largest && !m.opts.direct
}

// goesInParts reports whether a claim failed with err because the request goes in parts, which isLarge
// did not know without a route.
func (m *Method) goesInParts(err error) bool {
	var e *TooLargeError
	return errors.As(err, &e) && e.What == "request" && !m.opts.ordered && !m.opts.limited && !m.opts.direct
}

// sendLarge sends a request that fits no run of slots: its bytes go to the memory of a
// process that serves the method, and then a small request makes the handler run. Until
// that is published nothing is executed. The caller holds the gate.
func (m *Method) sendLarge(ctx context.Context, req []byte, to *sink) (*Future, error) {
	for tries := 0; ; tries++ {
		f, err := m.sendLargeOnce(ctx, req, 0, func(t *transfer) (*Future, error) {
			own := *to
			own.large = exchangeName{t.id, t.to}
			return m.sendPart(ctx, t.r, t.runPart(), &own)
		})
		if err == nil || !errors.Is(err, slots.ErrClosed) || tries == maxReroutes {
			return f, err
		}
	}
}

// postLarge is sendLarge for a one-way message.
func (m *Method) postLarge(ctx context.Context, msg []byte) error {
	for tries := 0; ; tries++ {
		_, err := m.sendLargeOnce(ctx, msg, exchange.FlagOneWay, func(t *transfer) (*Future, error) {
			var d draft
			if err := m.writePart(ctx, t.r, t.runPart(), &d); err != nil {
				return nil, err
			}
			d.h.Kind = slots.KindOneWay
			d.h.Encode(d.l.ring.Header(d.u))
			err := d.l.publish(d.u, false)
			if err == nil && m.conn.ended.Load() && d.l.revoke(d.u) {
				err = m.conn.endError() // the daemon ended before it took the message
			}
			return nil, err
		})
		followed := tries < maxReroutes && errors.Is(err, slots.ErrClosed) || tries == 0 && refused(err) // what was cached is forgotten
		if !followed {
			return err
		}
	}
}

// sendLargeOnce moves a request and has publish send what makes the handler run. The flags are those of the part that begins it.
func (m *Method) sendLargeOnce(ctx context.Context, req []byte, flags exchange.PartFlags, publish func(*transfer) (*Future, error)) (*Future, error) {
	if len(req) > MaxMessage {
		return nil, &TooLargeError{Target: m.name, What: "request", Size: len(req), Limit: MaxMessage, remedy: noLarger}
	}
	r, err := m.currentRoute(ctx)
	if err != nil {
		return nil, err
	}
	t := &transfer{m: m, r: r}
	var f *Future
	if err = t.upload(ctx, req, flags); err == nil {
		f, err = publish(t)
	}
	if err != nil {
		t.giveUp()
		return nil, m.notRun(r, err)
	}
	return f, nil
}

// notRun makes an error of one that has ended a request before its handler could run.
func (m *Method) notRun(r *route, err error) error {
	var late *DeadlineError
	switch {
	case errors.As(err, &late):
		return late.of(m.name, false)
	case errors.Is(err, ErrMaybeExecuted):
		// No handler has seen it: what was lost is a part.
		return fmt.Errorf("%s: %w: %w", m.name, ErrNotExecuted, hideNotExecuted{err})
	case errors.Is(err, slots.ErrClosed):
		m.route.p.CompareAndSwap(r, nil)
	}
	if errors.Is(err, ErrNotExecuted) {
		return err
	}
	return fmt.Errorf("%s: %w: %w", m.name, ErrNotExecuted, err)
}

// runPart makes the part that lets the handler run.
func (t *transfer) runPart() *part {
	room := t.m.opts.answer
	if room < 0 {
		room = t.r.answer
	}
	if room == attach.AnswerLikeRequest || room > partRoom {
		room = partRoom
	}
	room = min(room, t.r.largest) - exchange.PartSize // which writePart adds
	return &part{head: exchange.PartRequest{ID: t.id, Op: exchange.OpRun}, to: t.to, room: room}
}

// upload sends the bytes of a request.
func (t *transfer) upload(ctx context.Context, req []byte, flags exchange.PartFlags) error {
	open := &part{head: exchange.PartRequest{Op: exchange.OpOpenCall, Flags: flags, Credit: uint64(len(req))}}
	if len(req) < t.m.opts.rendezvous {
		open.data = req[:min(len(req), t.inlineSize())]
	}
	f, err := t.m.sendPart(ctx, t.r, open, &sink{inPlace: true, part: true})
	if err != nil {
		return err
	}
	err = t.m.awaitPart(ctx, f, func(a *exchange.PartAnswer, _, _ []byte) error {
		if a.Kind != exchange.KindOpened {
			return exchange.ErrProtocol
		}
		t.id, t.to = a.ID, a.To
		return nil
	})
	if err != nil {
		return err
	}
	return t.move(ctx, req, len(open.data), true)
}

// moreError says that an answer does not fit its run: it is no error to anybody else.
type moreError struct {
	transfer transfer
	total    int
	first    []byte
	// unwanted: there is nothing to fetch, only an exchange to be closed that nobody waits for.
	unwanted bool
}

func (*moreError) Error() string { return "more to fetch" }

// more reads what there is of an answer that does not fit.
func (f *Future) more(p []byte) error {
	var a exchange.PartAnswer
	data, _, err := a.Decode(p)
	if err == nil && f.forsaken && a.Kind == exchange.KindOpened {
		return &moreError{transfer: transfer{m: f.m, r: f.route, id: a.ID, to: a.To}, unwanted: true}
	}
	if err != nil || a.Kind != exchange.KindMore || a.Credit > MaxMessage || uint64(len(data)) > a.Credit {
		return f.corrupt(slots.ErrProtocol)
	}
	f.m.conn.pace.own.Add(int64(f.run.Len))
	return &moreError{
		transfer: transfer{m: f.m, r: f.route, id: a.ID, to: a.To},
		total:    int(a.Credit), first: append([]byte(nil), data...),
	}
}

// fetchRest frees the slots of an answer that does not fit them, and completes the
// future when a goroutine has fetched the rest.
func (f *Future) fetchRest(more *moreError) {
	f.consume()
	inPlace := f.inPlace
	f.inPlace = false
	ctx, stop := context.WithCancel(context.Background())
	f.mu.Lock()
	f.stop = stop
	if f.quit {
		stop()
	}
	f.mu.Unlock()
	c := f.m.conn
	if c.ended.Load() || !c.gate.enter() {
		stop()
		f.complete(nil, f.notFetched(c.endError()))
		return
	}
	go func() {
		defer c.gate.leave()
		if more.unwanted {
			more.transfer.giveUp()
			stop()
			f.complete(nil, f.notFetched(errUnwanted))
			return
		}
		buf, err := f.fetch(ctx, more, inPlace)
		stop()
		f.complete(buf, err)
		// Whoever leads, and waits for this one, sleeps on the bell.
		c.session.Wake()
	}()
}

// stopFetching makes the future complete soon if its answer is being fetched.
func (f *Future) stopFetching() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quit = true
	if f.stop != nil {
		f.stop()
	}
}

// fetch fetches the rest of an answer, into dst, or a block if it is to be read in place.
func (f *Future) fetch(ctx context.Context, more *moreError, inPlace bool) ([]byte, error) {
	t := &more.transfer
	if err := ctx.Err(); err != nil { // nobody wants it, and it can be large
		t.giveUp()
		return nil, f.notFetched(err)
	}
	buf := f.dst
	if inPlace {
		if f.block = f.m.conn.session.Pool.Take(ctx, more.total); f.block != nil {
			buf = f.block.Mem()
		}
	} else if f.m.opts.idempotent {
		buf = nil // dst may be the request's memory, which must stay for another try
	}
	if cap(buf) < more.total {
		buf = make([]byte, more.total)
	}
	buf = buf[:more.total]
	if inPlace {
		buf = buf[:more.total:more.total] // what is behind it in the block is not the caller's
	}
	if err := t.move(ctx, buf, copy(buf, more.first), false); err != nil {
		t.giveUp()
		f.block.Discard() // the handler's process may go on with a part
		f.block = nil
		return nil, f.notFetched(err)
	}
	if f.m.opts.idempotent && cap(f.dst) >= len(buf) {
		buf = append(f.dst[:0], buf...)
	}
	return buf, nil
}

// notFetched is the outcome of a request that was executed and whose answer is lost.
func (f *Future) notFetched(err error) error {
	if errors.Is(err, context.Canceled) {
		return errUnwanted
	}
	return fmt.Errorf("%s: %w: it was executed, and its answer was not fetched: %w", f.m.name, ErrMaybeExecuted, hideNotExecuted{err})
}

// errUnwanted is the outcome of a request that was executed and whose answer nobody wants any more. giveUp
// makes the caller's error of it.
var errUnwanted = fmt.Errorf("%w: it was executed, and its answer was not fetched", ErrMaybeExecuted)

// hideNotExecuted keeps what has become of a part, whatever that is, from being taken for what has become
// of the request.
type hideNotExecuted struct{ error }

// Is shows that the connection to the daemon has ended, which is so whoever says it.
func (h hideNotExecuted) Is(target error) bool {
	return target == ErrClosed && errors.Is(h.error, target)
}
