package config

import (
	"path/filepath"
	"slices"
)

// check makes the checks that look at several keys, and fills what depends on
// the system. A key that was refused on its own takes no part.
func (p *parser) check(c *Config, sys system) {
	if c.Node.Name == "" && !p.bad["node.name"] {
		c.Node.Name = defaultNodeName(sys.hostname)
	}
	p.checkClasses(c.Classes)
	p.checkDomains(c.Domains, sys)
	p.checkPeers(c)
	p.checkTLS(c)
	p.checkLimits(&c.Limits)
	p.checkObserve(c)
	p.checkListeners(c)
}

func (p *parser) checkClasses(classes []Class) {
	names := newUnique[string](p)
	sizes := newUnique[int](p)
	for i, c := range classes {
		path := element("class", i)
		names.add(join(path, "name"), c.Name)
		sizes.add(join(path, "slot_size"), c.SlotSize)
		if run := join(path, "max_run"); p.good(run, join(path, "slots")) && c.MaxRun > c.Slots/4 {
			p.fail(run, "must be at most a quarter of slots, which is %d, got %d", c.Slots/4, c.MaxRun)
		}
	}
}

func (p *parser) checkDomains(domains []Domain, sys system) {
	names := newUnique[string](p)
	users := admission{what: "user id", owner: map[uint32]int{}}
	groups := admission{what: "group id", owner: map[uint32]int{}}
	for i := range domains {
		d := &domains[i]
		path := element("domain", i)
		names.add(join(path, "name"), d.Name)
		at, atGroups := join(path, "users"), join(path, "groups")
		if !p.good(at, atGroups) {
			continue
		}
		if known, ok := p.admits[d.Name]; ok {
			d.UIDs, d.GIDs = known.UIDs, known.GIDs
		} else {
			d.UIDs = resolve(d.Users, "user", sys.user, p.failer(at))
			d.GIDs = resolve(d.Groups, "group", sys.group, p.failer(atGroups))
			if len(d.Users) == 0 && len(d.Groups) == 0 {
				d.UIDs = []uint32{sys.uid}
			}
		}
		users.add(p, at, domains, i, d.UIDs)
		groups.add(p, atGroups, domains, i, d.GIDs)
	}
}

// admission notices an id that two domains admit: its domain would depend on
// their order in the file.
type admission struct {
	what string
	// owner is the index of the domain that admits an id.
	owner map[uint32]int
}

func (a admission) add(p *parser, path string, domains []Domain, i int, ids []uint32) {
	for _, id := range ids {
		if first, ok := a.owner[id]; ok {
			p.fail(path, "%s %d is already admitted by domain %q (line %d)",
				a.what, id, domains[first].Name, p.lines.at(element("domain", first)))
			continue
		}
		a.owner[id] = i
	}
}

func (p *parser) checkPeers(c *Config) {
	names := newUnique[string](p)
	addresses := newUnique[string](p)
	for i, peer := range c.Peers {
		path := element("peer", i)
		name := join(path, "name")
		if p.good(name) && peer.Name == c.Node.Name {
			p.clash(name, "node.name", "%q is the name of this node", peer.Name)
		}
		names.add(name, peer.Name)
		addresses.add(join(path, "address"), peer.Address)
	}
	if len(c.Peers) > 0 && c.Node.Listen == "" && p.good("node.listen") {
		p.fail("node.listen", "is required when there are peers")
	}
}

func (p *parser) checkTLS(c *Config) {
	if c.TLS.Mode == TLSRequired {
		for key, path := range map[string]string{"cert": c.TLS.Cert, "key": c.TLS.Key, "ca": c.TLS.CA} {
			if at := join("tls", key); path == "" && p.good(at) {
				p.clash(at, "tls.mode", "is required with tls.mode = %q; rdmad certs init makes the files and prints their paths", TLSRequired)
			}
		}
	}
	if c.TLS.Data == TLSDataTLS {
		if c.TLS.Mode != TLSRequired && p.good("tls.mode") {
			p.clash("tls.data", "tls.mode", "%q needs tls.mode = %q", TLSDataTLS, TLSRequired)
		}
		if f := c.Fabric.Provider; f != "tcp" && f != "auto" && p.good("fabric.provider") {
			p.clash("tls.data", "fabric.provider", "%q needs fabric.provider = \"tcp\", or \"auto\" where that is tcp: data of %q cannot be encrypted", TLSDataTLS, f)
		}
	}
	seen := map[string]bool{}
	for _, name := range c.TLS.Allow {
		switch {
		case seen[name]:
			p.fail("tls.allow", "has %q twice", name)
		case !slices.ContainsFunc(c.Peers, func(peer Peer) bool { return peer.Name == name }):
			p.fail("tls.allow", "%q is not a [[peer]]", name)
		}
		seen[name] = true
	}
}

func (p *parser) checkLimits(l *Limits) {
	if at := "limits.spill_timeout"; p.good(at, "limits.spill_after") && l.SpillTimeout != 0 && l.SpillTimeout < l.SpillAfter {
		p.clash(at, "limits.spill_after", "must be 0s or at least limits.spill_after, which is %s, got %s", l.SpillAfter, l.SpillTimeout)
	}
}

// checkObserve sees to it that the daemon does not make two things in one place.
func (p *parser) checkObserve(c *Config) {
	if !p.good("node.socket", "observe.socket", "observe.counters") {
		return
	}
	socket, counters := c.ObserveSocket(), c.CountersPath()
	if len(socket) > maxSocketPath {
		p.clash("observe.socket", "node.socket", "needs a path of its own: %q would be longer than %d bytes", socket, maxSocketPath)
	}
	type owner struct{ what, key string }
	taken := map[string]owner{}
	for path, what := range map[string]string{
		c.Node.Socket: "node.socket", LockFile(c.Node.Socket): "the lock of node.socket", PIDFile(c.Node.Socket): "the process id beside node.socket",
	} {
		taken[filepath.Clean(path)] = owner{what, "node.socket"}
	}
	for _, at := range []struct{ key, path string }{{"observe.socket", socket}, {"observe.counters", counters}} {
		if at.path == "" {
			continue
		}
		path := filepath.Clean(at.path)
		if o, ok := taken[path]; ok {
			p.clash(at.key, o.key, "%q is %s", at.path, o.what)
		}
		taken[path] = owner{at.key, at.key}
	}
}

// checkListeners sees to it that the daemon can listen wherever it is to.
func (p *parser) checkListeners(c *Config) {
	type listener struct{ key, address string }
	list := []listener{{"node.listen", c.Node.Listen}}
	if f := c.Fabric.Provider; len(c.Peers) > 0 && (f == "tcp" || f == "auto") { // others do not listen there, or not by TCP
		list = append(list, listener{"fabric.listen", c.Fabric.Listen})
	}
	list = append(list, listener{"observe.listen", c.Observe.Listen})
	for i, l := range list {
		for _, before := range list[:i] {
			if p.good(l.key, before.key) && collide(l.address, before.address) {
				p.clash(l.key, before.key, "%q has the port of %s, which is %q; take another one", l.address, before.key, before.address)
			}
		}
	}
}

// good reports that none of the keys was refused.
func (p *parser) good(paths ...string) bool {
	return !slices.ContainsFunc(paths, func(path string) bool { return p.bad[path] })
}

// failer binds fail to a path.
func (p *parser) failer(path string) func(string, ...any) {
	return func(format string, args ...any) { p.fail(path, format, args...) }
}

// unique reports values that occur twice.
type unique[T comparable] struct {
	p     *parser
	lines map[T]int
}

func newUnique[T comparable](p *parser) unique[T] {
	return unique[T]{p: p, lines: map[T]int{}}
}

func (u unique[T]) add(path string, v T) {
	if !u.p.good(path) {
		return
	}
	if line, ok := u.lines[v]; ok {
		u.p.fail(path, "%#v is already used on line %d", v, line)
		return
	}
	u.lines[v] = u.p.lines.at(path)
}
