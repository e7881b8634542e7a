package daemon

import (
	"context"
	"fmt"
	"time"

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
		t.d.onTracer(true, func(v *tracer) {
			key = v.key
			if k := v.place(nil); v.place(&r.watch) < 0 && k >= 0 {
				v.scopes[k] = &traceScope{watch: &r.watch, methods: map[remoteMethod]bool{}} // nothing yet
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
	if b == nil || len(b.Marks) > traceEntries || b.Millis < 0 {
		return fmt.Errorf("%w: a malformed trace", peerproto.ErrFrame)
	}
	answer := &peerproto.Trace{}
	if d := c.domainNamed(b.Domain); d != nil {
		d.peerTrace(s.link.name, b, answer)
		c.mu.Lock()
		for i := range answer.Stages {
			if w := d.workers[answer.Stages[i].Worker]; w != nil {
				answer.Stages[i].Name, answer.Stages[i].PID = w.name, w.pid
			}
		}
		c.mu.Unlock()
	}
	return s.send(&peerproto.Message{Type: peerproto.TypeTraced, Seq: m.Seq, Trace: answer})
}

// peerTrace is conductor.peerTrace for the domain that it is about.
func (d *domain) peerTrace(peer string, b *peerproto.Trace, answer *peerproto.Trace) {
	wait := min(time.Duration(b.Millis)*time.Millisecond, traceFor)
	d.onTracer(b.Key != 0, func(t *tracer) {
		now := shm.Nanotime()
		if b.Key != 0 {
			t.admit(peer, b.Key, now, now+int64(wait))
		}
		t.look()
		for _, mark := range b.Marks {
			if e := t.find(mark); e != nil && e.lane.peer != nil && e.lane.peer.name == peer {
				answer.Stages = append(answer.Stages, e.stages(now))
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
		d.agent.commands.do(func() {
			d.view.endTracer()
			d.tracerTimer.Store(false)
			if d.view.tracer != nil {
				d.endTracerLater()
			}
		})
	})
}

// tracerLook is how often it is looked whether a tracer is still wanted.
const tracerLook = 100 * time.Millisecond

// stages returns what is known of a request, for its requester's node.
func (e *heardTrace) stages(now int64) peerproto.Stage {
	since := func(at int64) int64 {
		if at == 0 {
			return 0
		}
		return max(1, at-e.arrived)
	}
	return peerproto.Stage{
		Mark: e.mark, Given: since(e.given), Began: since(e.began), Ended: since(e.ended), Picked: since(e.picked),
		Collected: since(e.collected), Posted: since(e.posted), Now: since(now),
		Queued: e.queued, Again: e.again, Worker: int(e.worker), Answers: e.answers,
	}
}
