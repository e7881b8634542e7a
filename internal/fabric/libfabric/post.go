//go:build libfabric && cgo && linux

package libfabric

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/ledger"
)

// PostSend implements fabric.Endpoint. It is one call into C, as long as the library has
// room; what it has no room for waits here, and goes down with the next Poll.
func (e *Endpoint) PostSend(wrs []fabric.SendWR) (int, error) {
	if err := e.open(); err != nil {
		return 0, err
	}
	if e.phase() < phaseConnected {
		return 0, fmt.Errorf("%w: the endpoint is not connected", fabric.ErrInvalid)
	}
	room := e.sendDepth - e.sq.Len()
	n := 0
	var refused error
	first := e.sq.Tail
	for ; n < len(wrs); n++ {
		if n == room {
			refused = fabric.ErrQueueFull
			break
		}
		w := &wrs[n]
		if refused = e.build(&e.sends[e.sq.Index(e.sq.Tail)], w); refused != nil {
			break
		}
		*e.sq.At(e.sq.Tail) = sendEntry{id: w.ID, op: w.Op, report: w.Flags&fabric.FlagSignaled != 0}
		e.sq.Tail++
	}
	if n == 0 {
		return 0, refused
	}
	e.push()
	e.keep(first, wrs[:n])
	return n, refused
}

// open returns ErrClosed unless work is accepted.
func (e *Endpoint) open() error {
	if e.link != linkOpen || e.phase() == phaseClosed || e.cq.closed {
		return fabric.ErrClosed
	}
	return nil
}

// build fills s from w.
func (e *Endpoint) build(s *cSend, w *fabric.SendWR) error {
	addr, desc, ok := e.pd.local(&w.Local)
	if !ok || uint64(w.Local.Len) > e.dev.info.Limits.MaxMessage {
		return fabric.ErrInvalid
	}
	*s = cSend{
		addr: cUint64(addr), desc: cUint64(desc), len: cUint32(w.Local.Len), op: cUint8(w.Op), imm: cUint32(w.Imm),
		remote: cUint64(w.RemoteAddr), rkey: cUint64(w.RemoteKey), compare: cUint64(w.Compare), swap: cUint64(w.Swap),
	}
	inline, err := ledger.Check(w, e.dev.limits.MaxInline, e.dev.limits.Atomics)
	if inline {
		s.flags = sendInline
	}
	return err
}

// push gives the library what it has not taken yet. Of an endpoint that was closed since there is
// nothing to give it to: what was not taken is reported as flushed.
func (e *Endpoint) push() {
	if e.phase() == phaseClosed {
		return
	}
	if n := e.sq.Tail - e.next; n > 0 && e.link == linkOpen {
		taken, code := e.lib.post(e.sends, e.next, int(n))
		e.stats.SendCalls++
		e.stats.Sends += uint64(taken)
		e.next += uint32(taken)
		e.refused(code)
	}
	if n := e.loud.Tail - e.given; n > 0 && e.link == linkOpen {
		// From the first one on up to the end of the array, and the rest the next time.
		at := e.loud.Index(e.given)
		taken, code := e.lib.recv(e.recvs[at:min(at+n, uint32(len(e.recvs)))])
		e.stats.RecvCalls++
		e.stats.Recvs += uint64(taken)
		e.given += uint32(taken)
		e.refused(code)
	}
	// Until it is active its CQ may be at work elsewhere: what is left is pushed by wake, which Activate asks for.
	if e.link == linkOpen && (e.next != e.sq.Tail || e.given != e.loud.Tail) && !e.pushing && e.phase() == phaseActive {
		e.pushing = true
		e.cq.pushing = append(e.cq.pushing, e)
	}
}

// refused handles the library's answer to a work request that it has not taken. Until the endpoint is active the CQ may be at work
// elsewhere: its owner is told, as of what others find out.
func (e *Endpoint) refused(code int) {
	switch code {
	case 0:
	case errAgain:
		e.stats.Again++
	default:
		// It will never be taken.
		why, vendor := wcStatus(uint32(code)), uint32(code)
		if e.phase() == phaseActive {
			e.fail(why, vendor, true)
		} else {
			e.cq.notify(notice{e: e, own: true, why: why, vendor: vendor})
		}
	}
}

// keep copies the data of the work requests that have to wait and must be copied: their
// memory may change. first is the position of the first of wrs.
func (e *Endpoint) keep(first uint32, wrs []fabric.SendWR) {
	if e.link != linkOpen {
		return
	}
	size := e.dev.limits.MaxInline
	for pos := e.next; pos != e.sq.Tail; pos++ {
		at := pos - first
		if at >= uint32(len(wrs)) || wrs[at].Flags&fabric.FlagInline == 0 || wrs[at].Local.Len == 0 {
			continue
		}
		if e.spare == nil {
			e.spare = newPinnedBytes(len(e.sends) * size)
		}
		l := &wrs[at].Local
		i := int(e.sq.Index(pos))
		copy(e.spare.mem[i*size:i*size+int(l.Len)], l.Region.Bytes()[l.Offset:])
		e.sends[i].addr, e.sends[i].desc = cUint64(e.spare.addr+uint64(i*size)), 0
	}
}

// PostRecv implements fabric.Endpoint. Receives without memory are not known to the library
// and take immediates, those with memory take sends. It is at most one call into C, but for the first one.
func (e *Endpoint) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if err := e.open(); err != nil {
		return 0, err
	}
	room := e.recvDepth - e.quiet.Len() - e.loud.Len()
	n := 0
	var refused error
	for ; n < len(wrs); n++ {
		if n == room {
			refused = fabric.ErrQueueFull
			break
		}
		l := &wrs[n].Local
		addr, desc, ok := e.pd.local(l)
		if !ok {
			refused = fabric.ErrInvalid
			break
		}
		r := &e.quiet
		if l.Len > 0 {
			e.takesSends = true
			r = &e.loud
			at := r.Index(r.Tail)
			e.recvs[at] = cRecv{addr: cUint64(addr), desc: cUint64(desc), len: cUint32(l.Len), index: cUint32(at)}
		}
		*r.At(r.Tail) = recvEntry{id: wrs[n].ID, number: e.posted}
		r.Tail++
		e.posted++
	}
	if n > 0 && e.trapped == e.takesSends {
		e.setTrap(!e.takesSends)
	}
	if e.given != e.loud.Tail {
		e.push()
	}
	if e.early.len() > 0 && n > 0 {
		e.cq.wake(e)
	}
	return n, refused
}

// setTrap has the library catch sends that nobody asked for, which it would keep without a bound, or not any more. An end
// whose receives have no memory, as those of lanes, is one that no rdmad sends to.
func (e *Endpoint) setTrap(on bool) {
	e.trapped = on
	if code := e.lib.trap(on); code != 0 {
		e.refused(code)
	}
}
