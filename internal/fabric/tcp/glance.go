package tcp

// glance is how a completion queue finds what has arrived without asking the poller first: while
// others had the processor, the peer has mostly answered on the connection that something arrived on
// last. A read finds it for the one system call that it takes anyway. Where it finds nothing, it is
// tried less and less often.
type glance struct {
	// last is the endpoint on which something arrived last; nil before the first.
	last *Endpoint
	// pause is how many chances are passed over after one in vain, and passed how many have
	// been.
	pause, passed uint32
}

// maxPause is the longest pause: where there is a processor for everybody, one read in so many
// yields is in vain.
const maxPause = 128

// Glance implements fabric.Glancer.
func (q *cq) Glance() {
	g := &q.glance
	e := g.last
	if e == nil || e.readable || e.starved || e.link != linkOpen || q.poller == nil {
		return
	}
	e.readable, e.glanced = true, true
	q.push(e)
}

// read notes whether a read of e has found something.
func (g *glance) read(e *Endpoint, found bool) {
	if found {
		g.last = e
	}
	if !e.glanced {
		return
	}
	e.glanced = false
	if found {
		g.pause = 0
	} else {
		g.pause = min(2*g.pause+1, maxPause)
	}
}

// forget drops an endpoint that has ended.
func (g *glance) forget(e *Endpoint) {
	if g.last == e {
		g.last = nil
	}
}
