package daemon

import (
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// pagerMinor is the minor version of the ABI from which on clients may be parked.
const pagerMinor = 4

// pager wakes a client that is parked. A core makes its own for each client: with the death
// of the core its clients' waits for it end.
type pager struct {
	end *shm.Pager
	// reader is the client's end until it is sent, else -1.
	reader int
}

// makePager gives the worker a pager if its library knows what that is. Without one, such as
// for lack of descriptors, it sleeps in another way. Its agent does not know it yet.
func (w *worker) makePager() {
	w.pager.reader = -1
	if w.role != attach.RoleClient || shm.MinorOf(w.abi) < pagerMinor {
		return
	}
	end, reader, err := shm.NewPager()
	if err != nil {
		return
	}
	w.pager = pager{end: end, reader: reader}
	w.view.Rings.Down.SetPager(end)
}

// descriptors returns the client's end to be sent, if there is one.
func (p *pager) descriptors() []int {
	if p.end == nil || p.reader < 0 {
		return nil
	}
	return []int{p.reader}
}

// sent closes what was to be sent.
func (p *pager) sent() {
	shm.CloseFDs(p.descriptors())
	p.reader = -1
}

// close closes the pager. Its agent uses it no more.
func (p *pager) close() {
	p.sent()
	if p.end != nil {
		_ = p.end.Close()
		p.end = nil
	}
}
