package daemon

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/internal/status"
)

// live returns the configuration that is in force: the one that the core was started with,
// and what reloads have changed of it. Keys that a reload applies are read from it, each
// time that they are needed.
func (c *conductor) live() *config.Config {
	if cfg := c.reloaded.Load(); cfg != nil {
		return cfg
	}
	return c.cfg
}

// apply puts another configuration in force, which differs from the one before in nothing
// but what a reload applies. Nothing of it can fail: whoever reads a key finds all of
// the new ones, and agents are told between two of their cycles.
func (c *conductor) apply(next *config.Config) {
	before := c.live()
	c.reloaded.Store(next)
	c.events.SetLevel(nodelog.Level(next))
	idle := agent.IdleFor(next)
	for _, a := range c.agents {
		a.Commands.Do(func() {
			a.Idle = idle
			a.SetDelay(next.GroupSend.MaxGroupDelay)
		})
	}
	c.rotating.Lock() // or a domain that gets new memory would keep the old policy
	for _, d := range c.allDomains() {
		d.applyPolicy(next)
		d.agent.Commands.Do(func() { d.view.ApplyLimits(next) })
	}
	c.rotating.Unlock()
	c.applyPeers(before, next)
	c.recount(next)
	c.log.Info().Str("digest", next.Digest()).Int("peers", len(next.Peers)).Msg("the configuration was reloaded")
}

// applyPolicy changes who is admitted to the domain.
func (d *domain) applyPolicy(next *config.Config) {
	i := slices.IndexFunc(next.Domains, func(p config.Domain) bool { return p.Name == d.name })
	if i < 0 {
		return
	}
	d.policy.Store(&next.Domains[i])
}

// formerLinkLife is for how long the link of a removed peer is kept at least, where nothing is left of its sessions: longer
// than a connection takes that the peer may be making to this node meanwhile. In a fleet whose nodes never have the same name
// twice there would be more and more of them, and of their lanes, which go with them.
const formerLinkLife = 10 * time.Minute

// applyPeers makes links for the peers that are new and ends those of the ones that are
// not configured any more. A link that was ended is kept for a while, for when its peer comes
// back: what waits for it must not meet another link of the same name.
func (c *conductor) applyPeers(before, next *config.Config) {
	wanted := make(map[string]bool)
	var begun, ended []*link
	now := time.Now()
	c.mu.Lock()
	links := make(map[string]*link, len(next.Peers))
	for _, p := range next.Peers {
		wanted[p.Name] = true
		l := c.links[p.Name]
		if l == nil {
			if l = c.formerLinks[p.Name]; l == nil {
				l = newLink(c, p)
			} else {
				delete(c.formerLinks, p.Name)
				l.begin()
			}
			begun = append(begun, l)
		}
		l.address = p.Address
		links[p.Name] = l
	}
	for _, p := range before.Peers {
		if l := c.links[p.Name]; l != nil && !wanted[p.Name] {
			c.formerLinks[p.Name] = l
			l.removed = now
			l.cancel()
			ended = append(ended, l)
		}
	}
	c.links = links
	c.forgetLinks()
	c.notify()
	c.mu.Unlock()
	for _, l := range ended {
		c.log.Info().Str("peer", l.name).Msg("the peer is not configured any more")
		l.end(errNoPeer)
	}
	c.spawn(c.dropStrays)
	for _, l := range begun {
		c.log.Info().Str("peer", l.name).Str("address", l.address).Msg("the peer is configured now")
		ctx := l.ctx // not that of a later time, if the peer goes and comes again before the goroutine runs
		c.spawn(func() { l.dialLoop(ctx) })
	}
}

// allLinks returns the links of the configured peers. The map is not to be changed.
func (c *conductor) allLinks() map[string]*link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.links
}

// applyReloads puts in force what the supervisor sends, until the conductor stops.
func (c *conductor) applyReloads() {
	if c.told == nil {
		return
	}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.told.Configs:
		}
		next := c.told.Config.Load()
		if next == nil {
			continue
		}
		if next.Digest() != c.live().Digest() {
			c.apply(next.Config)
		}
		c.toldAs.Store(&next.SupervisorDigest) // also if all that has changed are keys which this release does not have
	}
}

// configStatus describes the configuration in force, and whom it admits by numbers: those who ask may have other users, or be on
// another machine.
func (c *conductor) configStatus() *status.Config {
	as := c.toldAs.Load() // first: what it is of is in force by then
	cfg := c.live()
	s := &status.Config{Digest: cfg.Digest(), TOML: string(cfg.Own())}
	if s.SupervisorDigest = s.Digest; as != nil {
		s.SupervisorDigest = cmp.Or(*as, s.Digest) // the supervisor of an older release does not say
	}
	if c.told != nil {
		s.Source, s.Overrides, s.Reload = c.told.Source, c.told.Overrides, c.told.Reload.Load()
	}
	return s
}
