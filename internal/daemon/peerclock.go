package daemon

import (
	"sync"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/shm"
)

// peerClock is what is known of a peer's clock.
type peerClock struct {
	mu sync.Mutex
	// offset is what to add to it to get this node's, in nanoseconds, and compared when that was found out.
	offset, compared int64
	comparing        bool
}

// set tells a lane, on its agent's thread.
func (p *peerClock) set(l *agent.InLane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.Clock, l.Compared = p.offset, p.compared
}

// begin reports whether nobody else is comparing the clocks.
func (p *peerClock) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.comparing
	p.comparing = true
	return first
}

// end notes the estimate that has come, nil for none.
func (p *peerClock) end(e *peerproto.ClockEstimate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.comparing, p.compared = false, shm.Nanotime()
	if e != nil {
		p.offset = e.Correct(p.offset)
	}
}

// compareClocks asks the peer for its clock again, and tells the lanes that requests with deadlines come in by. A peer that does
// not say it is taken to have the clock that it had.
func (s *session) compareClocks() {
	if !s.clock.begin() {
		return
	}
	c := s.link.conductor
	ctx, cancel := s.within(c.ctx, answerTimeout)
	defer cancel()
	sent := shm.Nanotime()
	m, err := s.ask(ctx, &peerproto.Message{Type: peerproto.TypePing})
	if err != nil || m.Clock == 0 {
		s.clock.end(nil)
		return
	}
	e := peerproto.EstimateClock(sent, shm.Nanotime(), m.Clock)
	s.clock.end(&e)
	for _, d := range c.allDomains() {
		_, ins := d.lanesOf(s.link.name)
		d.agent.Commands.Call(func() {
			for _, in := range ins {
				if p := in.lane.End; p != nil && p.Opening.Session == agent.Conversation(s) {
					s.clock.set(in.lane)
				}
			}
		})
	}
}
