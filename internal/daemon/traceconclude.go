package daemon

import (
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
)

// conclude makes traces of what the agent of a domain has found. What went to a peer is
// asked of it.
func (r *traceRun) conclude(d *domain, found []foundTrace) {
	c := r.conductor
	far := make(map[string][]foundTrace)
	for _, f := range found {
		if f.node == "" {
			r.put("", r.describe(d, &f, f.near, nil))
			continue
		}
		far[f.node] = append(far[f.node], f)
	}
	for node, list := range far {
		c.mu.Lock()
		var s *session
		if l := c.links[node]; l != nil {
			s = l.session
		}
		c.mu.Unlock()
		b := &peerproto.Trace{Domain: d.name}
		for i := range list {
			b.Marks = append(b.Marks, list[i].sent.mark)
		}
		tell := func(answer *peerproto.Trace) {
			for i := range list {
				r.put("", r.describe(d, &list[i], answer.About(list[i].sent.mark), s))
			}
		}
		if s == nil || !s.traces {
			tell(nil)
			continue
		}
		r.ask(s, b, tell)
	}
}

// describe makes a trace of what is known of a request at both ends.
func (r *traceRun) describe(d *domain, f *foundTrace, p *peerproto.Stage, s *session) status.Trace {
	c, e := r.conductor, &f.sent
	split := e.split(p)
	t := status.Trace{
		Domain: d.name, From: c.node, To: f.node, Kind: e.kind(), Outcome: e.outcome(), Stage: split.stage,
		Caller:       status.TraceProcess{ID: e.word.Owner()},
		RequestBytes: int(e.header.Length), TotalNS: split.total, Detail: split.detail, Notes: split.notes,
		Path: status.TracePath{
			Local: f.node == "", Provider: "local", Device: f.device, Lane: f.lane, Slot: e.slot, Slots: e.word.Run(),
			GroupMessages: e.group.messages, GroupSlots: e.group.slots, WRs: e.group.writes, Inline: e.group.inline,
			AnswerMessages: e.answers, Resent: e.resent,
		},
	}
	if t.Path.Local {
		t.To = c.node
	}
	if e.arrived != 0 {
		t.AnswerBytes = int(e.answer.Length)
	}
	t.Stages = split.stages(t.From, t.To)
	if t.Path.WRs > 0 {
		t.Path.SlotsPerWR = float64(t.Path.GroupSlots) / float64(t.Path.WRs)
	}
	if p != nil {
		t.Handler = status.TraceProcess{ID: p.Worker, Name: printable.Text(p.Name), PID: p.PID}
		t.Path.Queued, t.Path.Redispatched = p.Queued, p.Again
	}
	if s != nil {
		t.Path.Provider, t.Path.Address = s.fabric.name, s.link.dialled()
		if !s.traces {
			t.Notes = append(t.Notes, "node "+f.node+" runs a version that does not take part in traces")
		}
	} else if !t.Path.Local {
		t.Path.Provider = ""
		t.Notes = append(t.Notes, "node "+f.node+" is not connected")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, w := range map[*status.TraceProcess]*worker{&t.Caller: d.workers[t.Caller.ID], &t.Handler: d.workers[t.Handler.ID]} {
		if w != nil && (id == &t.Caller || t.Path.Local) {
			id.Name, id.PID = w.name, w.pid
		}
	}
	if l := d.lanes[f.lane]; l != nil {
		t.Path.Class, t.Path.Number = l.Class, l.Number
	}
	t.Service, t.Method = c.methodNames(d, f.node, e.header.Method)
	return t
}

// methodNames returns the names of a method that a node serves, "" for this one; mu is
// held. They are empty if nobody serves it any more.
func (c *conductor) methodNames(d *domain, node string, id uint32) (service, method string) {
	if node == "" {
		for k, m := range d.methods {
			if m.id == id {
				return k.service, k.method
			}
		}
		return "", ""
	}
	if l := c.links[node]; l != nil {
		for k, e := range l.directory[d.name] {
			if e.ID == id {
				return k.service, k.method
			}
		}
	}
	return "", ""
}
