package server

import (
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Inline has the handler run on the thread of the core that received the request, if the
// service lives in a core (package node); elsewhere it does nothing. Such a request takes two
// wake-ups of processes less: nobody but the core is woken at this node.
//
// Everything that this core does waits for the handler. It must therefore not block: not on
// locks that are held for long, nor on channels, files or sockets, and least of all on calls
// by way of this node, which would wait for themselves. What takes longer than about ten
// microseconds belongs into an ordinary handler. A core that makes no progress for
// node.hang_limit is ended and started again.
//
// It runs from the return of Handle on, and at the same time as other handlers, itself included: requests that do
// not fit the slots, that refer to regions or have an order, and those that came when the agent could not
// yet, or when the core was being replaced, are handled like those of other methods. So are streams. On the agent's
// thread the handler does not learn, by its Context, that its caller has ended.
func Inline() MethodOption { return func(m *attach.Method) { m.Inline = true } }

// handleInline makes the core's agent handle the requests for a method, or no longer.
func (s *Server) handleInline(method uint32, inline bool) error {
	core := s.session.Core
	if !inline && !s.wasInline[method] {
		return nil
	}
	serve := s.serveInline
	if !inline {
		serve = nil
	}
	if s.wasInline == nil {
		s.wasInline = make(map[uint32]bool)
	}
	s.wasInline[method] = inline
	return core.Inline(s.session.Welcome.Domain, s.id, method, serve)
}

// onAgent returns the handlers for the agent's thread, which are none if the method is not
// inline: the header may not be the one any more that the agent has judged, and the agent must
// neither run into a handler that blocks nor wait for Handle, which waits for the agent.
func (h handlers) onAgent() handlers {
	if !h.inline {
		return handlers{}
	}
	return h
}

// serveInline handles the request that h names, on the agent's thread.
func (s *Server) serveInline(h slots.Hint) {
	r := s.lanes[int(h.Lane())%slots.MaxLanes].Load()
	if r == nil || h.Index() >= r.Geometry().Slots {
		return
	}
	u, ok := r.PickHinted(h, s.id)
	if !ok {
		return
	}
	c := s.inline
	if freshCalls {
		c = &Call{server: s, inline: true}
	}
	c.ring, c.run, c.ctx, c.cancel, c.lane = r, u, nil, nil, h.Lane()
	c.serve()
	r.Finish(u, s.id)
	c.sayPanic()
}
