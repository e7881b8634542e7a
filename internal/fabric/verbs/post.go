//go:build verbs && cgo && linux

package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/ledger"
)

// PostSend implements fabric.Endpoint. It is one call into C. Data that fits the
// device's work request travels in it, which saves the device a read of memory.
func (e *Endpoint) PostSend(wrs []fabric.SendWR) (int, error) {
	if err := e.open(); err != nil {
		return 0, err
	}
	if e.phase() < phaseConnected {
		return 0, fmt.Errorf("%w: the endpoint is not connected", fabric.ErrInvalid)
	}
	room := len(e.sends) - e.sq.Len()
	n, quiet := 0, e.quiet
	var refused error
	for ; n < len(wrs); n++ {
		if n == room {
			refused = fabric.ErrQueueFull
			break
		}
		if refused = e.build(&e.sends[n], &wrs[n]); refused != nil {
			break
		}
		// Room in the queue becomes free with a completion only: one must be
		// on its way before the queue is full.
		if quiet++; wrs[n].Flags&fabric.FlagSignaled != 0 || quiet >= e.maxQuiet {
			e.sends[n].flags |= sendSignaled
			quiet = 0
		}
		e.sends[n].id = e.workID(e.sq.Tail+uint32(n), 0)
		spoil(&e.sends[n])
	}
	if n == 0 {
		return 0, refused
	}
	posted, errno := e.lib.postSend(e.sends[:n])
	e.posted(wrs[:posted])
	switch errno {
	case 0:
		return n, refused
	case unix.ENOMEM:
		if !e.starved() {
			return posted, fabric.ErrQueueFull
		}
	}
	return posted, &CallError{Call: "ibv_post_send", Errno: errno}
}

// starved reports whether no completion of the send queue is to come that its owner has asked for, so that nobody
// would ever tell it that there is room again: the device has taken less than it promised.
func (e *Endpoint) starved() bool {
	for p := e.sq.Head; p != e.sq.Tail; p++ {
		if e.sq.At(p).report {
			return false
		}
	}
	return true
}

// open returns ErrClosed unless work is accepted.
func (e *Endpoint) open() error {
	if e.link != linkOpen || e.phase() == phaseClosed || e.cq.closed {
		return fabric.ErrClosed
	}
	return nil
}

// posted notes work requests that the device has taken.
func (e *Endpoint) posted(wrs []fabric.SendWR) {
	e.stats.SendCalls++
	e.stats.Sends += uint64(len(wrs))
	for i := range wrs {
		w := &wrs[i]
		*e.sq.At(e.sq.Tail) = sendEntry{id: w.ID, op: w.Op, report: w.Flags&fabric.FlagSignaled != 0}
		e.sq.Tail++
		e.quiet++
		if e.sends[i].flags&sendSignaled != 0 {
			e.quiet = 0
			e.stats.Signaled++
		}
		if e.sends[i].flags&sendInline != 0 {
			e.stats.Inline++
		}
	}
}

// build fills s from w.
func (e *Endpoint) build(s *cSend, w *fabric.SendWR) error {
	addr, key, ok := e.pd.local(&w.Local)
	if !ok || w.Local.Len > e.dev.maxMsg || w.RemoteKey>>32 != 0 && w.Local.Len > 0 {
		return fabric.ErrInvalid
	}
	*s = cSend{
		addr: cUint64(addr), len: cUint32(w.Local.Len), lkey: cUint32(key), op: cUint8(w.Op), imm: cUint32(w.Imm),
		remote: cUint64(w.RemoteAddr), rkey: cUint32(w.RemoteKey), compare: cUint64(w.Compare), swap: cUint64(w.Swap),
	}
	inline, err := ledger.Check(w, e.inline, e.dev.limits.Atomics)
	if inline {
		s.flags = sendInline
	}
	return err
}

// PostRecv implements fabric.Endpoint. It is one call into C.
func (e *Endpoint) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if err := e.open(); err != nil {
		return 0, err
	}
	room := len(e.recvs) - e.rq.Len()
	n := 0
	var refused error
	for ; n < len(wrs); n++ {
		if n == room {
			refused = fabric.ErrQueueFull
			break
		}
		l := &wrs[n].Local
		addr, key, ok := e.pd.local(l)
		if !ok {
			refused = fabric.ErrInvalid
			break
		}
		e.recvs[n] = cRecv{id: e.workID(e.rq.Tail+uint32(n), recvBit), addr: cUint64(addr), len: cUint32(l.Len), lkey: cUint32(key)}
	}
	if n == 0 {
		return 0, refused
	}
	posted, errno := e.lib.postRecv(e.recvs[:n])
	e.stats.RecvCalls++
	e.stats.Recvs += uint64(posted)
	for i := range wrs[:posted] {
		*e.rq.At(e.rq.Tail) = wrs[i].ID
		e.rq.Tail++
	}
	switch errno {
	case 0:
		return n, refused
	case unix.ENOMEM:
		if e.rq.Len() > 0 { // else nothing could arrive
			return posted, fabric.ErrQueueFull
		}
	}
	return posted, &CallError{Call: "ibv_post_recv", Errno: errno}
}
