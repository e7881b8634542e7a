package daemon

import (
	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/shm"
)

// conclude makes traces of what the agent of a domain has found. What went to a peer is
// asked of it.
func (r *traceRun) conclude(d *domain, found []agent.FoundTrace) {
	c := r.conductor
	far := make(map[string][]agent.FoundTrace)
	for _, f := range found {
		if f.Node == "" {
			r.put("", r.describe(d, &f, f.Near, nil))
			continue
		}
		far[f.Node] = append(far[f.Node], f)
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
			b.Marks = append(b.Marks, list[i].Sent.Mark)
		}
		tell := func(answer *peerproto.Trace) {
			for i := range list {
				r.put("", r.describe(d, &list[i], answer.About(list[i].Sent.Mark), s))
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
func (r *traceRun) describe(d *domain, f *agent.FoundTrace, p *peerproto.Stage, s *session) status.Trace {
	c, e := r.conductor, &f.Sent
	split := e.Split(p, shm.Nanotime())
	t := status.Trace{
		Domain: d.name, From: c.node, To: f.Node, Kind: e.Kind(), Outcome: e.Outcome(), Stage: split.Stage,
		Caller:       status.TraceProcess{ID: e.Word.Owner(), Name: e.Caller.Name, PID: e.Caller.PID},
		RequestBytes: int(e.Header.Length), TotalNS: split.Total, Detail: split.Detail, Notes: split.Notes,
		Path: status.TracePath{
			Local: f.Node == "", Provider: "local", Device: f.Device, Lane: f.Lane, Slot: e.Slot, Slots: e.Word.Run(),
			GroupMessages: e.Group.Messages, GroupSlots: e.Group.Slots, WRs: e.Group.Writes, Inline: e.Group.Inline,
			AnswerMessages: e.Answers, Resent: e.Resent,
		},
	}
	if t.Path.Local {
		t.To = c.node
	}
	if e.Arrived != 0 {
		t.AnswerBytes = int(e.Answer.Length)
	}
	t.Stages = split.Stages(t.From, t.To)
	if t.Path.WRs > 0 {
		t.Path.SlotsPerWR = float64(t.Path.GroupSlots) / float64(t.Path.WRs)
	}
	if p != nil {
		t.Handler = status.TraceProcess{ID: p.Worker, Name: printable.Text(p.Name), PID: p.PID}
		t.Path.Queued, t.Path.Redispatched = p.Queued, p.Again
	}
	if s != nil {
		t.Path.Provider, t.Path.Address = s.fabric.Name, s.link.dialled()
		if !s.traces {
			t.Notes = append(t.Notes, "node "+f.Node+" runs a version that does not take part in traces")
		}
	} else if !t.Path.Local {
		t.Path.Provider = ""
		t.Notes = append(t.Notes, "node "+f.Node+" is not connected")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := d.lanes[f.Lane]; l != nil {
		t.Path.Class, t.Path.Number = l.Class, l.Number
	}
	t.Service, t.Method = c.methodNames(d, f.Node, e.Header.Method)
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
