package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// What the two nodes know of each other's regions outlives the session between them, like
// the lanes do. When it ends, the connections for operations are closed and the
// registrations end, so that nothing moves any more; operations wait. In the next
// session each side registers its regions again and names them with their new keys,
// before it opens a lane, and then says that this was all. See docs/protocol.md,
// "Resynchronisation".

// bulksWith calls f for the ways to operate on regions between this node and a peer.
func (c *conductor) bulksWith(peer string, f func(*bulk)) {
	for _, d := range c.allDomains() {
		c.mu.Lock()
		b := d.bulks[peer]
		c.mu.Unlock()
		if b != nil {
			f(b)
		}
	}
}

// suspend ends what a session had, after its end: connections and registrations.
func (b *bulk) suspend() {
	b.domain.agent.Commands.Call(func() { b.view.Suspend(b.domain.view) })
	b.mu.Lock() // who comes for it from now on finds that the session has ended, and who had it is counted
	registered := b.session != nil
	b.mu.Unlock()
	if registered {
		b.connecting.Wait() // they end with the session
		b.mu.Lock()
		b.unregister()
		b.mu.Unlock()
	}
}

// lose gives up what waits for the peer. What has been named again since is left alone.
func (b *bulk) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var gone []*region
	for r, mr := range b.exports {
		if mr == nil {
			gone = append(gone, r)
			b.unnote(r)
		}
	}
	b.domain.agent.Commands.Call(func() {
		b.view.Forget()
		for _, r := range gone {
			r.view.Exported = agent.Without(r.view.Exported, b.view)
		}
	})
}

// forget gives up what the peer's last core had exported: the regions of its next one
// are others, whatever they are called.
func (b *bulk) forget() { b.domain.agent.Commands.Call(b.view.Forget) }

// resume takes note that the peer has named all regions again that it still has.
func (b *bulk) resume() { b.domain.agent.Commands.Call(b.view.Resume) }

// repeat names the regions again that the peer knew in the last session. A region whose
// owner has died since is only said to be revoked, in every session until it is released:
// the last one may have ended before the peer heard of it. With mu held nothing that is said of a
// region meanwhile, or of its end, overtakes its name.
func (b *bulk) repeat(s *session) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.exports) == 0 {
		return nil
	}
	switch err := b.prepare(s); {
	case errors.Is(err, agent.ErrRetired):
		return nil // its regions are gone with its memory, and other domains are not to suffer for it
	case err != nil:
		return err
	}
	revoked := make(map[*region]bool)
	b.domain.agent.Commands.Call(func() {
		for r := range b.exports {
			revoked[r] = r.view.Revoked
		}
	})
	for r := range b.exports {
		if revoked[r] {
			if err := s.send(&peerproto.Message{Type: peerproto.TypeRevoke, Region: b.name(r)}); err != nil {
				return err
			}
			continue
		}
		mr, err := b.register(r)
		if err != nil {
			// Its owner's library will ask again, and hear why not.
			b.unnote(r)
			b.domain.agent.Commands.Call(func() { r.view.Exported = agent.Without(r.view.Exported, b.view) })
			event.RegionNotExported.On(&b.domain.conductor.log).Err(err).Str("peer", b.peer).Msg("a region cannot be exported again")
			continue
		}
		name := b.name(r)
		name.Key = mr.Remote()
		if err := s.send(&peerproto.Message{Type: peerproto.TypeExport, Region: name}); err != nil {
			return err
		}
		faultpoint.Here("repeat.export")
	}
	return nil
}

// repeatExports names all regions again that the peer knew, and says so.
func (c *conductor) repeatExports(s *session) {
	defer close(s.repeated)
	var err error
	c.bulksWith(s.link.name, func(b *bulk) {
		if err == nil {
			err = b.repeat(s)
		}
	})
	if err == nil {
		err = s.send(&peerproto.Message{Type: peerproto.TypeRepeated})
		faultpoint.Here("repeat.over")
	}
	if err != nil {
		s.end(fmt.Errorf("cannot export regions again: %w", err))
	}
}

// awaitRepeated waits until the regions of this node's workers have been named again, so
// that requests may refer to them.
func (s *session) awaitRepeated(ctx context.Context) error {
	select {
	case <-s.repeated:
		return nil
	case <-s.done:
		return s.Reason()
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errNotRepeated = errors.New("the peer does not say which regions it has")

// awaitPeerRepeated bounds how long operations wait for a peer that is back and says
// nothing of its regions: not less than for any other answer. A peer that has many to
// register anew names one after the other, and each gives it as long again.
func (c *conductor) awaitPeerRepeated(s *session) {
	patience := max(c.live().Node.LinkHold, answerTimeout)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	named := s.named
	for left := agent.MaxImports; ; left-- {
		if left == 0 {
			named = nil // it names more than it can have
		}
		select {
		case <-named:
			limit.Reset(patience)
			continue
		case <-s.resumed:
		case <-s.done:
		case <-c.ctx.Done():
		case <-limit.C:
			select { // where this node has stood still, both may be there
			case <-named:
				limit.Reset(patience)
				continue
			case <-s.resumed:
			default:
				s.end(errNotRepeated)
			}
		}
		return
	}
}

// peerRepeated deals with a peer's message that it has named all its regions again.
func (c *conductor) peerRepeated(s *session) {
	s.mu.Lock()
	first := !s.known
	s.known = true
	s.mu.Unlock()
	if first {
		c.bulksWith(s.link.name, (*bulk).resume)
		close(s.resumed)
	}
}
