package blast

import (
	"context"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/internal/perf/report"
	"github.com/rdmad/rdmad/shm"
)

// side is one end of a run: all its queue pairs, driven by one loop.
type side struct {
	t         *Tool
	s         *perf.Session
	senders   []*sender
	receivers []*receiver
	// ends are those of senders and receivers, by the tag of their completions: one of both.
	ends []end

	start  int64
	meter  perf.Meter
	peak   peak
	was    uint64   // messages through when the size began
	own    *ending  // what this side has said of its messages; nil: they have not all arrived
	cpu    perf.CPU // up to then
	told   bool     // that there are no more
	theirs *ending  // what the other side has said of its own
	served *served  // its answer

	wc [batch]fabric.Completion
}

// end is what this side is of a queue pair: one of both.
type end struct {
	sender   *sender
	receiver *receiver
}

func newSide(t *Tool, s *perf.Session) (*side, error) {
	d := &side{t: t, s: s}
	if want := uint64(t.endpoints() * t.layout().size); s.Peer.Len != want {
		return nil, &link.ProtocolError{Detail: fmt.Sprintf("%d bytes of memory instead of %d", s.Peer.Len, want)}
	}
	d.ends = make([]end, t.endpoints())
	for i := range d.ends {
		q := newStream(t, s, i)
		var err error
		if e := &d.ends[i]; t.sends(s.Role, i) {
			if e.sender, err = newSender(q, len(d.senders), d.poll); err == nil {
				d.senders = append(d.senders, e.sender)
			}
		} else if e.receiver, err = newReceiver(q); err == nil {
			d.receivers = append(d.receivers, e.receiver)
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// measure is what both sides do; the client's report is the result.
func (d *side) measure(ctx context.Context) (*report.Report, error) {
	r := &report.Report{Info: report.NewInfo("blast "+d.t.Op, &d.t.Work, d.s)}
	r.Info.TxDepth, r.Info.Queues, r.Info.Bidirectional = d.t.TxDepth, d.t.Queues, d.t.Both
	if d.t.credited() {
		r.Info.RxDepth = d.t.layout().window
	}
	for _, size := range d.t.Sizes {
		if err := d.begin(ctx, size); err != nil {
			return nil, err
		}
		for !d.over() {
			if err := d.turn(ctx); err != nil {
				return nil, err
			}
		}
		if len(d.senders) > 0 {
			r.Results = append(r.Results, d.row(size))
		}
	}
	// Neither ends the connection before the other one has heard its last word.
	return r, d.s.Barrier(ctx)
}

// begin makes both sides ready for messages of a size.
func (d *side) begin(ctx context.Context, size int) error {
	d.own, d.theirs, d.served, d.told = nil, nil, nil, false
	for _, o := range d.senders {
		o.begin(size)
	}
	for _, v := range d.receivers {
		v.begin(size)
	}
	if err := d.s.Barrier(ctx); err != nil {
		return err
	}
	d.was = d.through()
	d.meter, d.start = perf.StartMeter(), shm.Nanotime()
	d.peak = newPeak(d.t.Count*uint64(len(d.senders)), d.t.Duration, d.was, d.start)
	return nil
}

// over says that all messages of a size have arrived, and that both sides know it.
func (d *side) over() bool {
	return (len(d.senders) == 0 || d.served != nil) && (len(d.receivers) == 0 || d.theirs != nil)
}

// through is how many messages of this side are through, of all sizes.
func (d *side) through() (n uint64) {
	for _, o := range d.senders {
		n += o.progress()
	}
	return n
}

// turn does what can be done without waiting, or waits.
func (d *side) turn(ctx context.Context) error {
	did := false
	if d.own == nil && len(d.senders) > 0 {
		for _, o := range d.senders {
			stepped, err := o.step(ctx, d.start)
			if err != nil {
				return err
			}
			did = did || stepped
		}
		said, err := d.say()
		if err != nil {
			return err
		}
		did = did || said
	}
	if !did {
		return d.wait(ctx)
	}
	if len(d.receivers) > 0 {
		return d.poll(ctx)
	}
	return nil
}

// say tells the other side what it cannot know: that there are no more messages, and that they have
// arrived.
func (d *side) say() (said bool, err error) {
	over, all := true, true
	for _, o := range d.senders {
		over, all = over && o.over, all && o.phase == arrived
	}
	switch {
	case all:
		ns := shm.Nanotime() - d.start
		sent := d.through() - d.was
		d.own = &ending{last: last{d.sent()}, Sent: sent, Ns: ns, Best: d.peak.best}
		d.cpu = d.meter.Read()
		return true, d.s.Link.Send(kindEnd, d.own)
	case over && !d.told && d.t.Count == 0 && d.t.credited():
		d.told = true
		return true, d.s.Link.Send(kindLast, last{d.sent()})
	}
	return false, nil
}

// sent is how many messages each sender has sent.
func (d *side) sent() []uint64 {
	var n []uint64
	for _, o := range d.senders {
		n = append(n, o.sent)
	}
	return n
}

// poll takes what has completed.
func (d *side) poll(ctx context.Context) error {
	n, err := d.s.Poll(d.wc[:])
	if err != nil {
		return err
	}
	return d.takeAll(ctx, n)
}

// wait waits for completions, or a message of the other side, and takes them.
func (d *side) wait(ctx context.Context) error {
	n, err := d.s.Await(ctx, d.wc[:])
	if err != nil {
		return err
	}
	if n == 0 {
		return d.hear(ctx)
	}
	return d.takeAll(ctx, n)
}

// takeAll takes n completions.
func (d *side) takeAll(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	for i := range d.wc[:n] {
		c := &d.wc[i]
		if c.Tag >= uint64(len(d.ends)) {
			return &link.ProtocolError{Detail: fmt.Sprintf("a completion of endpoint %d", c.Tag)}
		}
		e := &d.ends[c.Tag]
		if e.sender != nil {
			if err := e.sender.take(c); err != nil {
				return err
			}
			continue
		}
		if err := e.receiver.take(c); err != nil {
			return err
		}
	}
	for _, v := range d.receivers {
		if err := v.settle(ctx); err != nil {
			return err
		}
	}
	if d.own != nil || len(d.senders) == 0 {
		return nil
	}
	now := shm.Nanotime()
	d.peak.see(d.through(), now, n == len(d.wc))
	// The other side may see nothing of messages.
	return d.s.AtWork(now)
}

// hear takes a message of the other side.
func (d *side) hear(ctx context.Context) error {
	m, err := d.s.Link.Next(ctx)
	if err != nil {
		return err
	}
	switch kind := m.Kind(); {
	case kind == kindLast && len(d.receivers) > 0:
		var no last
		if err := m.Into(&no); err != nil {
			return err
		}
		return d.noMore(ctx, no)
	case kind == kindCheck && len(d.receivers) > 0:
		var asked checking
		if err := m.Into(&asked); err != nil {
			return err
		}
		if asked.Queue < 0 || asked.Queue >= len(d.receivers) {
			return m.Unexpected()
		}
		if err := d.receivers[asked.Queue].check(asked.From, asked.To); err != nil {
			return err
		}
		return d.s.Link.Send(kindChecked, checked{asked.Queue})
	case kind == kindChecked:
		var done checked
		if err := m.Into(&done); err != nil {
			return err
		}
		if done.Queue < 0 || done.Queue >= len(d.senders) || d.senders[done.Queue].phase != beingChecked {
			return m.Unexpected()
		}
		d.senders[done.Queue].checked()
		return nil
	case kind == kindEnd && d.theirs == nil && len(d.receivers) > 0:
		var e ending
		if err := m.Into(&e); err != nil {
			return err
		}
		return d.ended(e)
	case kind == kindServed && d.own != nil && d.served == nil:
		d.served = new(served)
		return m.Into(d.served)
	}
	return m.Unexpected()
}

// noMore gives the credit that was held back for more messages.
func (d *side) noMore(ctx context.Context, no last) error {
	if len(no.Messages) != len(d.receivers) {
		return &link.ProtocolError{Detail: fmt.Sprintf("messages of %d queue pairs instead of %d", len(no.Messages), len(d.receivers))}
	}
	for i, v := range d.receivers {
		v.last = no.Messages[i]
		if err := v.credit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ended takes the other side's word that its messages have arrived, and answers.
func (d *side) ended(e ending) error {
	if len(e.Messages) != len(d.receivers) || e.Ns <= 0 || !(e.Best >= 0) {
		return &link.ProtocolError{Detail: fmt.Sprintf("an end with %d queue pairs, after %d ns", len(e.Messages), e.Ns)}
	}
	for i, v := range d.receivers {
		if d.t.credited() && e.Messages[i] != v.got {
			return fmt.Errorf("%d messages have arrived by queue pair %d, %d were sent", v.got, i, e.Messages[i])
		}
	}
	d.theirs = &e
	return d.s.Link.Send(kindServed, served{CPU: d.meter.Read()})
}

// row is the result for a size: what both directions have moved together.
func (d *side) row(size int) report.Row {
	r := report.Row{Size: size, Iterations: d.own.Sent, ClientCPU: d.cpu, ServerCPU: d.served.CPU}
	r.Bandwidth = report.NewBandwidth(size, d.own.Sent, d.own.Ns, d.own.Best)
	if d.theirs != nil {
		b := report.NewBandwidth(size, d.theirs.Sent, d.theirs.Ns, d.theirs.Best)
		r.Iterations += d.theirs.Sent
		if min(d.own.Best, d.theirs.Best) > 0 {
			r.Bandwidth.Peak += b.Peak
		} else {
			r.Bandwidth.Peak = 0 // that of one direction is none of both
		}
		r.Bandwidth.Average += b.Average
		r.Bandwidth.MsgRate += b.MsgRate
	}
	return r
}
