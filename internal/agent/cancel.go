package agent

import "github.com/rdmad/rdmad/slots"

// cancels does what the recorded message in slot i says, which is to drop a request.
func (l *InLane) cancels(i int) {
	rec := &l.records[i]
	var c slots.Cancel
	c.Decode(l.Ring.PayloadAt(i, int(rec.run)))
	if int(c.Slot) != i {
		l.drop(&c, rec.from)
	}
	h := slots.Header{Ticket: rec.ticket, Run: rec.run, Kind: slots.KindAnswer, Flags: slots.FlagControl}
	h.Encode(l.Ring.HeaderAt(i))
	l.done(i, 0)
	l.later()
}

// drop answers a request that its requester wants back, unless its handler has started.
// Requests with an order keep their places, and parts go by the rules of their exchange.
func (l *InLane) drop(c *slots.Cancel, from uint16) {
	if c.Slot >= uint32(l.geo.Slots) || from == 0 {
		return
	}
	i := int(c.Slot)
	rec := &l.records[i]
	if !rec.active || rec.ticket != c.Ticket || rec.from != from || rec.order != 0 || rec.to != 0 {
		return
	}
	if !l.recall(i) {
		return
	}
	l.domain.agent.Count.Cancelled++
	l.refuse(i, slots.StatusNotExecuted, "cancelled")
}
