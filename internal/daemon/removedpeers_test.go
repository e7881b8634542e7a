package daemon

import (
	"bufio"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// The lanes that requests of a peer came in by are given back with its link, when it was removed long ago, without another reload.
func TestMirrorsOfARemovedPeer(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	d := r.domainNamed("default")
	for n := range 3 {
		d.making.Lock()
		_, err := d.findOrMakeMirror(agent.Opening{Session: r.s, Seq: uint64(n)}, config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 16}, n, 0, nil)
		d.making.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (lanes, known int) {
		r.tasks.Wait()
		r.agent.Commands.Call(func() { known = len(d.view.InLanes) })
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(d.lanes), known
	}
	peers := &config.Config{Peers: []config.Peer{{Name: "a"}}}
	r.applyPeers(peers, &config.Config{})
	if lanes, known := kept(); lanes != 3 || known != 3 {
		t.Errorf("%d lanes when the peer has just been removed, of which the agent knows %d", lanes, known)
	}
	forgetting := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.forgetting
	}
	if r.forgetAgain(); !forgetting() {
		t.Error("the peer is still to be forgotten, and nobody does")
	}
	r.link.removed = r.link.removed.Add(-2 * formerLinkLife)
	if r.forgetAgain(); forgetting() {
		t.Error("nothing is to be forgotten, and somebody looks")
	}
	if lanes, known := kept(); lanes != 0 || known != 0 {
		t.Errorf("%d lanes when the peer was removed long ago, of which the agent knows %d", lanes, known)
	}
}

// So are those that requests to it went out by, but for one that a process has: that one goes with the process.
func TestLanesToARemovedPeer(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	d := r.domainNamed("default")
	w := clientOf(t, d)
	class := config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 16}
	var had *outgoing
	for n := range 3 {
		o, err := d.outgoing(place{node: "a", session: r.s}, class, n)
		if err != nil {
			t.Fatal(err)
		}
		had = o
	}
	r.agent.Commands.Call(func() { d.view.Joins(w.view, had.info.ID) })
	r.bulkWith(d, "a")
	others := func() (n int) {
		r.agent.Commands.Call(func() { n = len(d.view.Peers) + len(d.view.Movers) - 1 }) // one is that of the node itself
		r.mu.Lock()
		defer r.mu.Unlock()
		return n + len(d.bulks)
	}
	left := func() (lanes, outs, known int) {
		r.tasks.Wait()
		r.agent.Commands.Call(func() { known = len(d.view.OutLanes) })
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(d.lanes), len(d.outs), known
	}
	r.applyPeers(&config.Config{Peers: []config.Peer{{Name: "a"}}}, &config.Config{})
	if lanes, outs, known := left(); lanes != 3 || outs != 3 || known != 3 {
		t.Errorf("%d lanes, %d in use, when the peer has just been removed, of which the agent knows %d", lanes, outs, known)
	}
	r.link.removed = r.link.removed.Add(-2 * formerLinkLife)
	r.agent.Commands.Call(func() { w.view.Spilling = true })
	r.applyPeers(&config.Config{}, &config.Config{})
	if lanes, outs, known := left(); lanes != 3 || outs != 3 || known != 3 {
		t.Errorf("%d lanes, %d in use, while answers are copied, of which the agent knows %d", lanes, outs, known)
	}
	r.agent.Commands.Call(func() { w.view.Spilling = false })
	r.applyPeers(&config.Config{}, &config.Config{})
	if lanes, outs, known := left(); lanes != 1 || outs != 1 || known != 1 {
		t.Errorf("%d lanes, %d in use, when the peer was removed long ago, of which the agent knows %d", lanes, outs, known)
	}
	if n := others(); n != 3 {
		t.Errorf("%d ways to regions of a peer to which there is a lane", n)
	}
	if o, err := d.outgoing(place{node: "a", session: r.s}, class, 2); err != nil || o != had {
		t.Errorf("the peer is back, and its lane is another one: %v", err)
	}
	r.detach(w)
	if lanes, outs, known := left(); lanes != 0 || outs != 0 || known != 0 {
		t.Errorf("%d lanes, %d in use, when nobody has them, of which the agent knows %d", lanes, outs, known)
	}
	if n := others(); n != 0 {
		t.Errorf("%d ways to regions of a removed peer", n)
	}
}

// clientOf returns a client that is attached to a domain, and says goodbye before it is detached.
func clientOf(t *testing.T, d *domain) *worker {
	t.Helper()
	seg, err := shm.Create(shm.CreateOptions{Name: "rdmad-worker", Kind: shm.KindWorker, Size: slots.WorkerSegmentSize})
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{domain: d, id: 1, role: attach.RoleClient, pidfd: -1, bye: true, seg: seg, given: make(map[uint16]bool)}
	w.view = &agent.Worker{ID: w.id, Rings: slots.NewWorkerRings(seg.Bytes())}
	w.makePager()
	d.conductor.mu.Lock()
	d.workers[w.id] = w
	d.conductor.mu.Unlock()
	d.agent.Commands.Call(func() { d.view.AddWorker(w.view) })
	return w
}

// A process is not gone while answers are copied for it: with it may go the lanes that they are in.
func TestDepartureAwaitsSpills(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	d := r.domainNamed("default")
	w := clientOf(t, d)
	w.spiller = newSpiller(w)
	d.using.Lock() // keeps what looks at slots from doing so
	if !w.spiller.start(nil) {
		t.Fatal("it does not start")
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r.detach(w)
	}()
	eventually(t, "it is detached", func() (err error) {
		r.agent.Commands.Call(func() {
			if !w.view.Gone {
				err = errors.New("it is not")
			}
		})
		return err
	})
	select {
	case <-gone:
		t.Error("it is gone before")
	case <-time.After(50 * time.Millisecond):
	}
	d.using.Unlock()
	<-gone
}

// Nothing of a session is kept when what waited for its link is given up, or of one that waited to take its place: the link of a
// peer that is not configured any more is forgotten.
func TestUsedLinksAreForgotten(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	peers := &config.Config{Peers: []config.Peer{{Name: "a"}}}
	mine := r.hello(r.link).Hello
	h := *mine
	h.Node, h.Session, h.Lost = "a", 8, r.s.id
	conn, other := net.Pipe()
	defer other.Close()
	ch := &peerauth.Channel{Conn: conn, Raw: conn}
	next, err := newSession(r.link, ch, bufio.NewReader(ch), &h, mine, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.link.session = r.s
	adopted := make(chan struct{})
	go func() {
		defer close(adopted)
		r.link.adopt(next)
	}()
	<-r.s.life.Done() // it is to be replaced
	r.applyPeers(peers, &config.Config{})
	r.link.serveSession(r.s) // which finds that it has ended
	<-adopted
	r.link.hold(r.s)
	r.link.removed = r.link.removed.Add(-2 * formerLinkLife)
	r.applyPeers(&config.Config{}, &config.Config{})
	if l := r.formerLinks["a"]; l != nil {
		t.Errorf("the link is there: session %v, next %v, holding %v", l.session, l.next, l.holding)
	}
}
