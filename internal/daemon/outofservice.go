package daemon

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/status"
)

// outage is a time in which the node's services take no new requests, because somebody
// has said so ("rdmad drain"). Requests of the node's own workers to other nodes go on.
type outage struct{ since time.Time }

// drainsNow reports whether the node takes no new requests; mu is held.
func (c *conductor) drainsNow() bool { return c.draining || c.outage != nil }

// mayOperate reports whether a user may look at the node with tools, and say whether it is in
// service, whomever its domains admit: root and the user that the daemon is of.
func mayOperate(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// drainAsked takes the node out of service, or puts it back. Either again does nothing.
func (c *conductor) drainAsked(w *worker, m *attach.Message) error {
	switch {
	case w.role != attach.RoleTool || m.Drain == nil:
		return fmt.Errorf("%w: a malformed drain message", attach.ErrInvalid)
	case !mayOperate(w.uid):
		return fmt.Errorf("%w: only root and user %d, whose daemon it is, may take node %s out of service", attach.ErrPermission, os.Geteuid(), c.node)
	case m.Drain.Resume:
		c.resumeService(w.pid)
	default:
		c.leaveService(w.pid)
	}
	return nil
}

// leaveService makes peers and the node's own workers send nothing more to services of
// this node. What is under way goes on; drainStatus says how far it has come.
func (c *conductor) leaveService(pid int) {
	c.serving.Lock()
	defer c.serving.Unlock()
	c.mu.Lock()
	again := c.outage != nil || c.draining
	if !again {
		c.outage = &outage{since: time.Now()}
		c.beginDrain()
		c.keepOut()
		c.countPeers()
		c.notify()
	}
	c.mu.Unlock()
	if again {
		return
	}
	c.log.Info().Int("by_pid", pid).Msg("out of service")
	c.applyService(true)
	c.tellPeersOfService()
}

// resumeService undoes leaveService.
func (c *conductor) resumeService(pid int) {
	c.serving.Lock()
	defer c.serving.Unlock()
	c.mu.Lock()
	out, stopping := c.outage, c.draining
	c.mu.Unlock()
	if out == nil || stopping {
		return
	}
	c.log.Info().Int("by_pid", pid).Dur("out_for", time.Since(out.since)).Msg("in service again")
	c.applyService(false) // first: who waits for the node is to find its lanes open
	c.mu.Lock()
	c.outage = nil
	c.keepOut()
	c.countPeers()
	c.notify()
	c.mu.Unlock()
	c.tellPeersOfService()
}

// keepOut keeps for the next core whether the node is out of service; mu is held.
func (c *conductor) keepOut() {
	since := int64(0)
	if c.outage != nil {
		since = c.outage.since.UnixNano()
	}
	c.keepIdentity(func(m *handoff.Node) { m.Out = since })
}

// adoptService makes the node out of service if it was that with the last core. That may
// have died before its lanes said so.
func (c *conductor) adoptService() {
	out := c.identity.Out != 0
	if out {
		c.outage = &outage{since: time.Unix(0, c.identity.Out)}
		c.drains++
	}
	c.applyService(out)
}

// applyService closes the lanes of the node to itself to new requests, or opens them.
func (c *conductor) applyService(out bool) {
	c.rotating.Lock() // no domain gets other memory meanwhile
	defer c.rotating.Unlock()
	c.eachDomain(func(d *agent.Domain) {
		d.OutOfService = out
		for _, l := range d.OutLanes {
			switch {
			case l.Local == nil:
			case out:
				l.SetDraining()
			default:
				l.Undrain()
			}
		}
	})
}

// drainStatus describes the outage, if there is one; serving is what all domains count.
// mu is held.
func (c *conductor) drainStatus(serving int) *status.Drain {
	if c.outage == nil {
		return nil
	}
	busy := append([]string{}, c.undrainedLocked()...)
	for _, l := range c.links {
		// Lost just now, or not back since the core was replaced: its requests wait for the link.
		if l.session == nil && !l.drained && time.Since(l.since) < c.live().Node.LinkHold {
			busy = append(busy, l.name)
		}
	}
	slices.Sort(busy)
	return &status.Drain{SinceS: time.Since(c.outage.since).Seconds(), Requests: serving, Peers: busy, Complete: serving == 0 && len(busy) == 0}
}

// tellPeersOfService has all peers told whether this node takes requests. It does not wait for peers to read.
func (c *conductor) tellPeersOfService() {
	for _, l := range c.allLinks() {
		if s := l.current(); s != nil {
			c.spawn(func() { c.tellService(s) })
		}
	}
}

// beginDrain begins another time in which the node takes no requests; mu is held.
func (c *conductor) beginDrain() {
	c.drains++
	for _, l := range c.links {
		l.drained = false
	}
}

// tellService tells a peer whether this node takes requests, unless it knows. What is told
// is looked up with the session's publishing held, so that nothing newer is overtaken.
func (c *conductor) tellService(s *session) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	c.tellServiceNow(s)
}

// tellServiceNow is tellService with publishing held.
func (c *conductor) tellServiceNow(s *session) {
	c.mu.Lock()
	seq := uint64(0)
	if c.drainsNow() {
		seq = c.drains
	}
	tell := seq != s.saidDrain
	if tell && s.link.session == s {
		s.link.drained = false // if it was, then for a drain that is over
	}
	c.mu.Unlock()
	if !tell {
		return
	}
	var news []*peerproto.Message
	if s.saidDrain != 0 {
		// Also if the node drains anew, which may have been in service for a moment only: the peer, who was told nothing
		// of that, would answer the drain before, which means nothing any more.
		news = append(news, &peerproto.Message{Type: peerproto.TypeUndrain})
	}
	if seq != 0 {
		news = append(news, &peerproto.Message{Type: peerproto.TypeDrain, Seq: seq})
	}
	s.saidDrain = seq
	for _, m := range news {
		if err := s.send(m); err != nil {
			s.end(err)
			return
		}
	}
}
