package client

import (
	"context"
	"errors"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
)

const (
	// inlinePart is how many bytes of a large message one part has in slots.
	inlinePart = 128 << 10
	// modestWindow is how many parts of a large message are under way at once, and
	// modestPart how many bytes one has in a region, while others use the lanes, too.
	modestWindow = 2
	modestPart   = 128 << 10
	// ampleWindow and amplePart are that while nobody does.
	ampleWindow = 4
	amplePart   = 1 << 20
	// maxRepeats is how often a part, or a request with regions, is sent again whose
	// node has forgotten a region.
	maxRepeats = 8
)

// transfer moves the bytes of a large request to the process that has its exchange, or
// those of a large answer from there.
type transfer struct {
	m  *Method
	r  *route
	id uint64
	to uint16

	region *attach.Region // nil if the bytes go in slots
	// block is what region is of, and the bytes are copied into it, or out of it, part by
	// part. nil: they are in the region, from base on.
	block  *attach.Block
	base   int
	flying [ampleWindow]flyingPart
}

// flyingPart is a part under way.
type flyingPart struct {
	f      *Future
	off, n int
}

// inlineSize is how many bytes a part can carry in slots.
func (t *transfer) inlineSize() int {
	return min(inlinePart, t.r.largest-exchange.PartSize)
}

// move moves the bytes of buf from the given one on, up or down. The caller holds the
// gate.
func (t *transfer) move(ctx context.Context, buf []byte, from int, up bool) error {
	if len(buf)-from >= max(1, t.m.opts.rendezvous) {
		t.takeRegion(ctx, buf)
	}
	var err error
	clean := true
	window, size := t.pace()
	for next, first, count := from, 0, 0; next < len(buf) && err == nil || count > 0; {
		if next < len(buf) && err == nil && count < window {
			n := min(size, len(buf)-next)
			k := (first + count) % ampleWindow
			// Nobody waits for room who has answers to take that hold it: they may be all that
			// this process may hold.
			f, e := t.send(ctx, k, buf[next:next+n], next, up, count > 0)
			if e == nil {
				t.flying[k] = flyingPart{f, next, n}
				next += n
				count++
				continue
			}
			if count == 0 || !errors.Is(e, ErrBackpressure) {
				err = e
				continue
			}
		}
		k := first % ampleWindow
		e := t.await(ctx, k, buf, up)
		for n := 0; t.region != nil && n < maxRepeats && errors.Is(e, ErrNotExported); n++ {
			e = t.again(ctx, k, buf, up)
		}
		if e != nil {
			// The handler's process may go on with its part: nobody uses the memory again.
			clean = clean && errors.Is(e, ErrNotExecuted) && !errors.Is(e, ErrDeadline)
			if err == nil {
				err = e
			}
		}
		first, count = first+1, count-1
		window, size = t.pace()
	}
	t.giveRegion(clean)
	return err
}

// pace returns how many parts may be under way now, and how large the next one is at most.
func (t *transfer) pace() (window, size int) {
	switch {
	case t.region == nil:
		return modestWindow, t.inlineSize()
	case t.m.conn.pace.alone(t.m.conn):
		return ampleWindow, amplePart
	default:
		return modestWindow, modestPart
	}
}

// again sends a part once more whose node has forgotten the region, or what it allowed
// the part to do with it: its bytes have not arrived, or not all of them, and do not
// count.
func (t *transfer) again(ctx context.Context, k int, buf []byte, up bool) error {
	peer := t.r.peer()
	t.region.Forgotten(peer)
	if err := t.region.Export(ctx, peer); err != nil {
		return err
	}
	p := &t.flying[k]
	var err error
	if p.f, err = t.send(ctx, k, buf[p.off:p.off+p.n], p.off, up, false); err != nil {
		return err
	}
	return t.await(ctx, k, buf, up)
}

// send publishes the k-th part of those under way; with noWait ErrBackpressure where there is no
// room at once.
func (t *transfer) send(ctx context.Context, k int, buf []byte, off int, up, noWait bool) (*Future, error) {
	p := &part{head: exchange.PartRequest{ID: t.id, Offset: uint64(off), Op: exchange.OpPull, Length: uint32(len(buf))}, to: t.to, noWait: noWait}
	rights := MayWrite
	if up {
		p.head.Op, rights = exchange.OpPush, MayRead
	}
	switch {
	case t.region != nil:
		ref, err := (&Region{t.region}).Ref(t.place(k, off), len(buf), rights)
		if err != nil {
			return nil, err
		}
		p.region = ref
		p.head.Flags = exchange.FlagRegion
		if up && t.block != nil {
			copy(t.block.Mem()[t.place(k, off):], buf)
		}
	case up:
		p.data = buf
	default:
		p.room = len(buf)
	}
	return t.m.sendPart(ctx, t.r, p, &sink{inPlace: true, part: true})
}

// await waits for the k-th part of those under way.
func (t *transfer) await(ctx context.Context, k int, buf []byte, up bool) error {
	p := t.flying[k]
	return t.m.awaitPart(ctx, p.f, func(a *exchange.PartAnswer, data, _ []byte) error {
		switch {
		case up && a.Kind == exchange.KindAck:
			return nil
		case up || a.Kind != exchange.KindData || a.Offset != uint64(p.off) || int(a.Length) != p.n,
			a.Flags&exchange.FlagRegion != 0 != (t.region != nil): // its bytes would be somewhere else
			return exchange.ErrProtocol
		case t.block != nil:
			copy(buf[p.off:p.off+p.n], t.block.Mem()[t.place(k, p.off):])
		case t.region != nil:
		default:
			copy(buf[p.off:], data)
		}
		return nil
	})
}

// place is where in the region the k-th part of those under way is, which begins at off of
// the message.
func (t *transfer) place(k, off int) int {
	if t.block != nil {
		return k * amplePart
	}
	return t.base + off
}

// takeRegion finds the region of which buf is a part, or takes a block for the transfer. It
// does without if there is no room for one.
func (t *transfer) takeRegion(ctx context.Context, buf []byte) {
	s := t.m.conn.session
	if t.region, t.base = s.RegionOf(buf); t.region == nil {
		if t.block = s.Pool.Take(ctx, ampleWindow*amplePart); t.block == nil {
			return
		}
		t.region = t.block.Region
	}
	if t.region.Export(ctx, t.r.peer()) != nil {
		t.giveRegion(true)
	}
}

// giveRegion gives the block back, if there is one, for others to use unless handlers may
// still use it.
func (t *transfer) giveRegion(clean bool) {
	if clean {
		t.block.Release()
	} else {
		t.block.Discard()
	}
	t.region, t.block = nil, nil
}

// giveUp tells the process that has the exchange to forget it.
func (t *transfer) giveUp() {
	if t.id != 0 {
		t.m.closeExchange(t.r, t.id, t.to)
	}
}
