package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/shm"
)

// arm has the peers follow the requests that are marked. It waits for that the first time:
// what a peer does not know to follow, it tells nothing of.
func (r *traceRun) arm(wait bool) {
	c := r.conductor
	type target struct {
		d *domain
		s *session
	}
	var list []target
	now := time.Now()
	domains := r.domains()
	c.mu.Lock()
	for _, d := range domains {
		for _, l := range c.links {
			s := l.session
			if s == nil || !s.traces {
				continue
			}
			key := armedLink{d.name, l.name}
			if a := r.armed[key]; a.session != s || now.Sub(a.at) > traceAgain {
				r.armed[key] = armedAt{s, now}
				list = append(list, target{d, s})
			}
		}
	}
	c.mu.Unlock()
	for _, t := range list {
		var key uint32
		t.d.onTracer(true, func(v *agent.Tracer) {
			key = v.Key
			if k := v.Place(nil); v.Place(&r.watch) < 0 && k >= 0 {
				v.Scopes[k] = &agent.TraceScope{Watch: &r.watch, Methods: map[agent.RemoteMethod]bool{}} // nothing yet
			}
		})
		if key == 0 {
			continue
		}
		r.ask(t.s, &peerproto.Trace{Domain: t.d.name, Key: key, Millis: traceFor.Milliseconds()}, func(*peerproto.Trace) {})
	}
	if wait {
		r.asked.Wait()
	}
}

// ask asks a peer, on a goroutine of its own, and calls f with what it says, or nil.
func (r *traceRun) ask(s *session, b *peerproto.Trace, f func(*peerproto.Trace)) {
	r.asked.Add(1)
	if !r.conductor.spawn(func() {
		defer r.asked.Done()
		ctx, cancel := context.WithTimeout(r.conductor.ctx, traceAsk)
		defer cancel()
		m, err := s.ask(ctx, &peerproto.Message{Type: peerproto.TypeTrace, Trace: b})
		if err != nil || m.Trace == nil {
			f(nil)
			return
		}
		f(m.Trace)
	}) {
		r.asked.Done()
	}
}

// peerTrace does what a peer wants to be followed, and tells what is known.
func (c *conductor) peerTrace(s *session, m *peerproto.Message) error {
	b := m.Trace
	if b == nil || len(b.Marks) > agent.TraceEntries || b.Millis < 0 {
		return fmt.Errorf("%w: a malformed trace", peerproto.ErrFrame)
	}
	answer := &peerproto.Trace{}
	if d := c.domainNamed(b.Domain); d != nil {
		d.peerTrace(s.link.name, b, answer)
	}
	return s.answer(&peerproto.Message{Type: peerproto.TypeTraced, Seq: m.Seq, Trace: answer})
}

// peerTrace is conductor.peerTrace for the domain that it is about.
func (d *domain) peerTrace(peer string, b *peerproto.Trace, answer *peerproto.Trace) {
	wait := time.Duration(min(b.Millis, traceFor.Milliseconds())) * time.Millisecond
	d.onTracer(b.Key != 0, func(t *agent.Tracer) {
		now := shm.Nanotime()
		if b.Key != 0 {
			t.Admit(peer, b.Key, now, now+int64(wait))
		}
		t.Look()
		for _, mark := range b.Marks {
			if e := t.Find(mark); e != nil && e.Lane.Peer != nil && e.Lane.Peer.Name == peer {
				answer.Stages = append(answer.Stages, e.Stages(now))
			}
		}
	})
	if b.Key != 0 && wait > 0 {
		d.endTracerLater()
	}
}

// endTracerLater ends the tracer when nobody wants it any more. However many messages ask for
// it, there is one timer.
func (d *domain) endTracerLater() {
	if !d.tracerTimer.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(tracerLook, func() {
		d.agent.Commands.Do(func() {
			d.view.EndTracer()
			d.tracerTimer.Store(false)
			if d.view.Tracer != nil {
				d.endTracerLater()
			}
		})
	})
}

// tracerLook is how often it is looked whether a tracer is still wanted.
const tracerLook = 100 * time.Millisecond
