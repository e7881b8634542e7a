package agent

import (
	"bytes"
	"fmt"

	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// simCall is a request, or a message, with all that is known about it.
type simCall struct {
	id     int // the header's cookie
	client *simWorker
	lane   *simLane
	run    slots.Run
	method uint32
	oneway bool
	// order and number: its place in an order.
	order, number  uint16
	before         *simCall
	length, answer int
	deadline       int64
	cancels        *simCall

	stage callStage
	// ready: a hint said that it is answered, and it is.
	ready bool
	// losses and unserved are those of its lane and of the node that answers, when it
	// was published and claimed.
	losses, unserved int
	cancelled        bool
	orphan           bool // its client has died
	forsaken         bool // and it must not be started any more
	abandoned        bool // its node was lost
	// started counts its executions; returned: a handler has answered it;
	// pickerDied: the process that had started it died, or may have.
	started              int
	returned, pickerDied bool
}

type callStage int

const (
	claimed callStage = iota
	published
	revoked
	resolved
)

func (c *simCall) String() string {
	what := "request"
	switch {
	case c.cancels != nil:
		what = fmt.Sprintf("cancel of %d,", c.cancels.id)
	case c.oneway:
		what = "message"
	}
	return fmt.Sprintf("%s %d (%v slot %d ticket %d run %d order %d.%d)", what, c.id, c.lane, c.run.Index, c.run.Ticket, c.run.Len, c.order, c.number)
}

func (c *simCall) key() simOrder { return simOrder{c.client, c.lane, c.order} }

// server returns the node that answers the lane's requests.
func (l *simLane) server() *simNode {
	if l.toPeer {
		return l.node.peer
	}
	return l.node
}

// pattern is what the bytes of a request, or of its answer, are.
func (c *simCall) pattern(b []byte, answer byte) []byte {
	for i := range b {
		b[i] = byte(c.id) + byte(i*7) ^ byte(c.id>>8) ^ answer
	}
	return b
}

func (c *simCall) header() slots.Header {
	h := slots.Header{
		Ticket: c.run.Ticket, Run: uint16(c.run.Len), Length: uint32(c.length), Answer: uint32(c.answer), Kind: slots.KindRequest, Method: c.method,
		From: uint16(c.client.id), Cookie: uint64(c.id), Deadline: c.deadline, Order: c.order,
	}
	if c.oneway {
		h.Kind, h.Answer = slots.KindOneWay, 0
	}
	if c.cancels != nil {
		h.Flags, h.Length = slots.FlagCancel, slots.CancelSize
	}
	return h
}

// write writes the request into its slots.
func (c *simCall) write() {
	p := c.lane.ring.Payload(c.run)
	if c.cancels != nil {
		(&slots.Cancel{Slot: uint32(c.cancels.run.Index), Ticket: c.cancels.run.Ticket}).Encode(p)
		return
	}
	c.pattern(p[:c.length], 0)
}

// chain writes the header, with the place in the order: now, because the order is that
// of publishing.
func (c *simCall) chain() {
	h := c.header()
	if c.order != 0 {
		c.number = 1
		h.After, h.AfterTicket = uint16(c.run.Index), uint32(c.run.Ticket)
		if last := c.client.chains[c.key()]; last != nil {
			c.number, c.before = last.number+1, last
			h.After, h.AfterTicket = uint16(last.run.Index), uint32(last.run.Ticket)
		}
		c.client.chains[c.key()] = c
	}
	h.Encode(c.lane.ring.Header(c.run))
}

// started is called when a handler starts on the request in u.
func (l *simLane) started(p *simWorker, u slots.Run) *simCall {
	w := l.node.w
	var h slots.Header
	if !h.Decode(l.ring.Header(u)) || h.Cookie == 0 || h.Cookie > uint64(len(w.calls)) {
		w.fail("%v: %v starts on slot %d, which has %+v", l, p, u.Index, h)
	}
	c := w.calls[h.Cookie-1]
	if c.run != u || h.Ticket != u.Ticket || int(h.Length) != c.length {
		w.fail("%v: %v starts on %+v, which is %v with %+v", l, p, u, c, h)
	}
	if got := l.ring.Payload(u)[:c.length]; !bytes.Equal(got, c.pattern(make([]byte, c.length), 0)) {
		w.fail("%v: the handler sees other bytes", c)
	}
	w.log("%v started by %v", c, p)
	if c.started++; c.started > 1 {
		w.fail("%v is executed twice", c)
	}
	switch {
	case c.forsaken:
		w.fail("%v is executed, and nobody waits for it any more", c)
	case c.stage == revoked:
		w.fail("%v is executed, and was taken back", c)
	case c.method != simMethod || c.cancels != nil:
		w.fail("%v is executed, and is nobody's", c)
	}
	c.ordered()
	return c
}

// ordered verifies that those before it in its order have started, or have an outcome,
// and have returned.
func (c *simCall) ordered() {
	for b := c.before; b != nil; b = b.before {
		if b.losses != c.lane.losses {
			return // the order does not outlive a loss
		}
		switch {
		case b.started > 0 && !b.returned && !b.pickerDied:
			c.lane.node.w.fail("%v starts, and %v has not returned", c, b)
		case b.started == 0 && b.stage == published && !b.settled():
			c.lane.node.w.fail("%v starts before %v", c, b)
		case b.started > 0:
			return
		}
	}
}

// settled reports whether a request that no handler has started has its answer, or
// will be refused because it is late or nobody served it.
func (c *simCall) settled() bool {
	return c.ready || c.deadline == lateHere || c.deadline == lateThere || c.orphan || c.unserved != c.lane.server().unserved ||
		c.lane.ring.Word(c.run.Index) != slots.MakeWord(slots.Taken, c.run.Len, c.client.id, c.run.Ticket)
}

// answerIn writes the answer over the request.
func (c *simCall) answerIn(r *slots.Ring, u slots.Run) {
	h := slots.Header{Ticket: u.Ticket, Run: uint16(u.Len), Kind: slots.KindAnswer, Length: uint32(c.answer), Cookie: uint64(c.id)}
	if c.oneway {
		h.Length, h.Flags = 0, slots.FlagControl
	}
	c.pattern(r.Payload(u)[:h.Length], 0x5a)
	h.Encode(r.Header(u))
}

// judge verifies the outcome in the slots of an answered request.
func (c *simCall) judge() {
	w, l := c.lane.node.w, c.lane
	var h slots.Header
	if !h.Decode(l.ring.Header(c.run)) || h.CheckAnswer(simGeometry, c.run.Len, c.run.Ticket) != nil {
		w.fail("%v: the answer is %+v", c, h)
	}
	w.log("%v ends: %v %q", c, h.Status, l.ring.Payload(c.run)[:h.Length*uint32(min(h.Status, 1))])
	w.count("outcome: " + h.Status.String())
	lossy := c.losses != l.losses
	allowed := false
	switch h.Status {
	case slots.StatusOK:
		if got := l.ring.Payload(c.run)[:h.Length]; h.Cookie != uint64(c.id) || int(h.Length) != c.answer || !bytes.Equal(got, c.pattern(make([]byte, c.answer), 0x5a)) {
			w.fail("%v: the answer is another's: %+v", c, h)
		}
		if c.started != 1 {
			w.fail("%v is answered, and was executed %d times", c, c.started)
		}
		return
	case slots.StatusMaybeExecuted:
		if !lossy && !c.pickerDied {
			w.fail("%v may have been executed, and nothing was lost", c)
		}
		return
	case slots.StatusNoService:
		allowed = c.method == simNobodys || c.unserved != l.server().unserved
	case slots.StatusDeadline:
		allowed = c.deadline == lateHere || c.deadline == lateThere
	case slots.StatusNotExecuted:
		allowed = c.cancelled || lossy
	}
	if !allowed {
		w.fail("%v ends with %v %q", c, h.Status, l.ring.Payload(c.run)[:h.Length])
	}
	if c.started > 0 {
		w.fail("%v ends with %v, and was executed", c, h.Status)
	}
	c.cancelled = true
}

// lands verifies that a write may land in a lane's slots.
func (l *simLane) lands(off int, data []byte) {
	w, size := l.node.w, simGeometry.SlotSize
	if off%size != 0 {
		w.fail("%v: a write at %d", l, off)
	}
	for i := off / size; len(data) > 0; {
		var h slots.Header
		if !h.Decode(data) || h.Run < 1 || int(h.Run) > simGeometry.MaxRun {
			w.fail("%v: a write to slot %d with %+v", l, i, h)
		}
		if l.toPeer {
			if word := l.ring.Word(i); word.State() != slots.Taken || word.Ticket() != h.Ticket || word.Run() != int(h.Run) {
				w.fail("%v: an answer with ticket %d lands in slot %d, which is %v", l, h.Ticket, i, word)
			}
		} else {
			for j := i; j < i+int(h.Run); j++ {
				if l.in.covered[j] {
					w.fail("%v: a request with ticket %d lands in slot %d, which has one that is not answered", l, h.Ticket, j)
				}
			}
			if rec := &l.in.records[i]; rec.seen && !slots.TicketNewer(h.Ticket, rec.ticket) {
				w.fail("%v: a request with ticket %d lands in slot %d after one with %d", l, h.Ticket, i, rec.ticket)
			}
		}
		i += int(h.Run)
		data = data[min(len(data), int(h.Run)*size):]
	}
}

// check verifies that what the cores know agrees with itself.
func (w *world) check() {
	for _, n := range w.nodes {
		if n.core == nil {
			continue
		}
		if c := n.core.a.Count.ProtocolErrors; c > 0 {
			w.fail("%s: %d protocol errors, and everybody is honest", n.name, c)
		}
		w.checkDelays(n)
		given := map[uint16]int{}
		underWay := 0
		for _, l := range n.lanes {
			if l.out != nil {
				l.out.check(simTB{w: w})
				underWay += l.out.busy
			}
			if l.in == nil {
				continue
			}
			active := 0
			for i := range l.in.records {
				if rec := &l.in.records[i]; rec.active {
					active++
					given[rec.worker]++
				}
			}
			if active != l.in.Busy {
				w.fail("%v: %d requests under way, busy %d", l, active, l.in.Busy)
			}
			underWay += active
		}
		if d := n.core.d; underWay != d.underWay {
			w.fail("%s: %d requests under way, and %d counted", n.name, underWay, d.underWay)
		}
		for _, p := range n.workers {
			if p.service && p.view.outstanding != given[uint16(p.id)] {
				w.fail("%v has %d requests, outstanding %d", p, given[uint16(p.id)], p.view.outstanding)
			}
		}
	}
}

// checkDelays verifies that what is held back will be looked at again.
func (w *world) checkDelays(n *simNode) {
	d := n.core.d
	if n.core.a.Count.GroupsDelayed > 0 {
		w.count("group: held back")
	}
	listed := 0
	for _, l := range n.lanes {
		if l.out != nil && l.out.delayed {
			listed++
		}
		if l.in != nil && l.in.delayed {
			listed++
		}
	}
	if listed != len(d.delayed) || (listed > 0) != (d.due != 0) || d.due > int64(w.step)+1+int64(n.core.a.delay.limit) {
		w.fail("%s: %d lanes are held back, %d are listed, due at %d", n.name, listed, len(d.delayed), d.due)
	}
}

// quiet reports whether nothing is under way.
func (w *world) quiet() bool { return w.unrest() == "" }

// unrest says what is under way.
func (w *world) unrest() string {
	for _, n := range w.nodes {
		if n.core == nil {
			return n.name + " has no core"
		}
		for _, p := range n.workers {
			switch {
			case !p.alive:
				return fmt.Sprintf("%v is not buried", p)
			case len(p.calls) > 0:
				return fmt.Sprintf("%v of %v has no outcome: %v", p.calls[0], p, p.calls[0].lane.ring.Word(p.calls[0].run.Index))
			case len(p.running) > 0:
				return fmt.Sprintf("%v is in a handler", p)
			}
		}
		for _, l := range n.lanes {
			if why := l.unrest(); why != "" {
				return fmt.Sprintf("%v: %s", l, why)
			}
		}
	}
	return ""
}

func (l *simLane) unrest() string {
	if l.out != nil && (l.out.busy > 0 || len(l.out.deferred)+len(l.out.resend) > 0) {
		return fmt.Sprintf("%d requests in the journal, %d deferred", l.out.busy, len(l.out.deferred))
	}
	if l.in != nil && (l.in.Busy > 0 || l.in.answers.Pending() > 0) {
		return fmt.Sprintf("%d requests without answers, %d answers to send", l.in.Busy, l.in.answers.Pending())
	}
	if l.dropping || l.toPeer && l.out.End == nil {
		return "not open"
	}
	for i := range simGeometry.Slots {
		if word := l.ring.Word(i); !l.fromPeer && word.State() != slots.Free {
			return fmt.Sprintf("slot %d is %v", i, word)
		}
		if e := l.vault.Journal.Load(i); !l.fromPeer && e.State != vault.EntryNone {
			return fmt.Sprintf("slot %d is in the journal: %+v", i, e)
		}
		if r := l.vault.Records.Load(i); !l.toPeer && (r.State == vault.RecordActive || r.State == vault.RecordFailing) {
			return fmt.Sprintf("slot %d is in the records: %+v", i, r)
		}
	}
	return ""
}

// finish verifies what became of everything.
func (w *world) finish() {
	for _, c := range w.calls {
		switch {
		case c.started > 1:
			w.fail("%v was executed %d times", c, c.started)
		case c.cancelled && c.stage == resolved && !c.oneway && c.started > 0 && !c.returned && !c.pickerDied:
			w.fail("%v was not to be executed, and was", c)
		case c.stage == published && !c.orphan && !c.abandoned:
			w.fail("%v has no outcome", c)
		case c.oneway && (c.stage == resolved || c.stage == published && c.orphan) && c.started == 0 && c.owed():
			w.fail("%v was never executed", c)
		}
		if c.oneway && c.stage == resolved {
			w.count([...]string{"message: dropped", "message: executed"}[c.started])
		}
	}
}

// owed reports whether a message must have been executed.
func (c *simCall) owed() bool {
	return c.cancels == nil && c.method == simMethod && c.deadline != lateHere && c.deadline != lateThere && !c.abandoned &&
		c.losses == c.lane.losses && c.unserved == c.lane.server().unserved
}

// dump logs all that has no outcome.
func (w *world) dump() {
	for _, n := range w.nodes {
		for _, p := range n.workers {
			for _, h := range p.backlog {
				w.log("%v has a hint of lane %d slot %d ordered %v", p, h.Lane(), h.Index(), h.Ordered())
			}
			for _, c := range p.calls {
				l, i := c.lane, c.run.Index
				if l.out != nil {
					w.log("%v: %v, journal %+v", c, l.ring.Word(i), l.out.journal[i])
				}
				for _, o := range l.server().lanes {
					if o.in != nil && o.number == l.number && !o.dropping && (o == l || o.fromPeer) {
						w.log("   at %v: record %+v, answer word %v, connected %v, %d pending", o, o.in.records[i], o.ring.AnswerWord(i), o.in.End != nil, o.in.answers.Pending())
					}
				}
			}
		}
	}
}
