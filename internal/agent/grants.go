package agent

import "github.com/rdmad/rdmad/slots"

// grants are what the handler of one request may operate on. They live from the
// request's arrival until its answer is on its way and no operation is under way.
type grants struct {
	lane  *InLane
	index int
	list  [slots.MaxRefs]grant
	n     int
	// busy counts operations that are accepted and not complete.
	busy int
	// closed: the request has its answer. held: the handler has finished, and
	// its answer waits for the operations. dying: the handler's process is dead,
	// and the end of the request waits for them. revoked: the lane is down, and not
	// just suspended.
	closed, held, dying, revoked bool
}

// grant is one reference of a request: to a region of a peer, or of this node.
type grant struct {
	ref    slots.Ref
	remote *importedRegion
	local  *Region
}

// grant reads the references of the request in slot i, whose record exists, and
// notes what its handler may use. False: it has refused the request.
func (l *InLane) grant(i, run, n int) bool {
	d := l.domain
	g := d.takeGrants()
	g.lane, g.index = l, i
	l.records[i].grants = g
	p := l.Ring.PayloadAt(i, run)
	for k := range n {
		var e grant
		ok := e.ref.Decode(p[k*slots.RefSize:])
		switch {
		case !ok:
		case l.Local != nil:
			// The words of the journal say whose request it is.
			if e.local = d.region(e.ref.Region, l.Local.journal[i].word.Owner()); e.local == nil || !slots.Inside(e.ref.Offset, e.ref.Length, uint64(len(e.local.Mem))) {
				ok = false
			} else {
				e.local.hold()
			}
		case l.Peer == nil || !l.Peer.knows(e.ref.Region):
			l.refuse(i, slots.StatusNotExported, "a region is not known here")
			return false
		default:
			if e.remote = l.Peer.imports[e.ref.Region]; slots.Inside(e.ref.Offset, e.ref.Length, e.remote.key.Len) {
				e.remote.refs++
			} else {
				ok = false
			}
		}
		if !ok {
			l.domain.agent.Count.ProtocolErrors++
			if l.Local != nil {
				l.domain.damage(true)
			}
			l.refuse(i, slots.StatusInvalid, "a reference to no region of the caller, or beyond its end")
			return false
		}
		g.list[g.n] = e
		g.n++
	}
	return true
}

// takeGrants returns empty grants, used ones if there are any.
func (d *Domain) takeGrants() *grants {
	if n := len(d.spareGrants); n > 0 {
		g := d.spareGrants[n-1]
		d.spareGrants = d.spareGrants[:n-1]
		return g
	}
	return new(grants)
}

// close ends the grants of a request that has its answer.
func (g *grants) close() {
	g.closed = true
	if g.busy == 0 {
		g.recycle()
	}
}

func (g *grants) recycle() {
	d := g.lane.domain
	for k := range g.list[:g.n] {
		e := &g.list[k]
		if e.local != nil {
			e.local.release()
		}
		if e.remote != nil {
			e.remote.refs--
			e.remote.quiet()
		}
	}
	*g = grants{}
	d.spareGrants = append(d.spareGrants, g)
}

// operated notes that an operation is complete.
func (g *grants) operated() {
	if g.busy--; g.busy > 0 {
		return
	}
	l := g.lane
	switch {
	case g.closed:
		g.recycle()
	case g.dying:
		l.domain.agent.Count.MaybeExecuted++
		l.refuse(g.index, slots.StatusMaybeExecuted, "the handler's process died")
		l.later()
	case g.held:
		g.held = false
		if w := l.domain.Workers[l.records[g.index].worker]; w != nil {
			l.finished(g.index, w)
			l.domain.roomier = true
		}
	}
}

// holdBack reports whether the answer must wait for operations; then operated will
// come back to it.
func (g *grants) holdBack() bool {
	g.held = g.busy > 0
	return g.held
}

// die is holdBack for a request whose handler's process is dead.
func (g *grants) die() bool {
	g.dying = g.busy > 0
	return g.dying
}

// revoke ends the use of the grants of a lane that is down.
func (l *InLane) revoke() {
	any := false
	for i := range l.records {
		if g := l.records[i].grants; g != nil {
			g.revoked = true
			any = any || g.busy > 0
		}
	}
	if any {
		l.domain.abandon(func(o *operation) bool { return o.grants.lane == l }, slots.OpLost)
	}
}
