package client

import "github.com/rdmad/rdmad/slots"

// callOff asks the answering node to drop a request that the daemon has taken, if its
// handler has not started. It does not wait: without a free slot the request goes on.
// The caller holds the gate and knows that the request is not over: its slots are its own.
func (f *Future) callOff() {
	if f.ordered || f.part {
		return
	}
	if f.large.id != 0 {
		f.notRun() // its bytes are with its process, which decides
		return
	}
	l, run := f.lane, f.run
	if l.conn.ended.Load() {
		return
	}
	// Also what is kept for a claim that waits: it is what this may make room for.
	u, err := l.tryClaim(l.ring.Geometry().RunFor(slots.CancelSize), false)
	if err != nil {
		return
	}
	h := slots.Header{
		Ticket: u.Ticket, Run: uint16(u.Len), Length: slots.CancelSize, Kind: slots.KindOneWay, Flags: slots.FlagCancel, From: uint16(l.conn.id),
	}
	c := slots.Cancel{Slot: uint32(run.Index), Ticket: run.Ticket}
	c.Encode(l.ring.Payload(u))
	h.Encode(l.ring.Header(u))
	_ = l.publish(u, false)
}

// exchangeName is how a process knows an exchange that it has.
type exchangeName struct {
	id uint64
	to uint16
}

// notRun tells the process that has a large request that its handler is not to run; if it does already, it
// goes on. It does not wait, and does nothing for other requests.
func (f *Future) notRun() {
	if f.large.id == 0 {
		return
	}
	m, r, x := f.m, f.route, f.large
	go m.closeExchange(r, x.id, x.to) // not from here: who completes futures does not claim slots
}
