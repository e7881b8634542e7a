package agent

import (
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/shm"
)

// FoundTrace is what an agent has found.
type FoundTrace struct {
	Sent SentTrace
	// Device is what the endpoint says of itself, Lane the lane's id, Node the one at its
	// other end, "" for this one.
	Device string
	Lane   uint16
	Node   string
	// Near is what is known of the other end of a local lane; nil for another.
	Near *peerproto.Stage
}

// Found returns a copy of an entry, with what goes with it.
func (t *Tracer) Found(e *SentTrace) FoundTrace {
	f := FoundTrace{Sent: *e, Lane: e.lane.id, Node: e.lane.peerName()}
	if p := e.lane.End; p != nil {
		f.Device = fabric.Describe(p.Endpoint)
	}
	if e.lane.Local != nil {
		if h := t.Find(e.Mark); h != nil {
			b := h.Stages(e.End(shm.Nanotime()))
			f.Near = &b
		}
	}
	f.Sent.lane = nil // the agent's
	return f
}

// WithTracer calls f on the agent's thread, with fresh if there is no tracer. False: there
// is none at all. It is for other goroutines than the agent's.
func (d *Domain) WithTracer(fresh *Tracer, f func(*Tracer)) (ok bool) {
	d.agent.Commands.Call(func() {
		if d.Tracer == nil && !d.Retired {
			d.Tracer = fresh
		}
		if d.Tracer != nil {
			ok = true
			f(d.Tracer)
			d.EndTracer()
		}
	})
	return ok
}

// EndTracer forgets a tracer that nobody needs.
func (d *Domain) EndTracer() {
	if d.Tracer != nil && d.Tracer.idle(shm.Nanotime()) {
		d.Tracer = nil
	}
}
