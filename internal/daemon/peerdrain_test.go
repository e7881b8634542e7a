package daemon

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/slots"
)

// That a peer was done with this node once, when that left service, says nothing when it leaves again.
func TestPeerDrainedForAnEarlierTime(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.link.session, r.link.drained = r.s, true // it was out of service, and is back
	r.draining, r.drains = true, 2
	told := make(chan error, 1)
	go func() {
		_, err := peerproto.Read(bufio.NewReader(r.peer), peerproto.MaxFrame)
		told <- err
	}()
	r.tellPeersOfService()
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	if busy := r.undrained(); len(busy) != 1 {
		t.Errorf("it waits for %v, and the peer has not answered", busy)
	}
	r.link.peerDrained(r.s, 2)
	r.tellPeersOfService() // it knows
	if busy := r.undrained(); len(busy) != 0 {
		t.Errorf("it waits for %v", busy)
	}
}

// A peer that was told of a drain, and not in time that it is over, is told of the next one, for which the node waits.
func TestDrainAgainBeforeThePeerIsTold(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.identity = new(handoff.Node)
	r.link.session = r.s
	reader := bufio.NewReader(r.peer)
	if err := r.peer.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	expect := func(kind peerproto.Type, seq uint64) {
		t.Helper()
		if m, err := peerproto.Read(reader, peerproto.MaxFrame); err != nil || m.Type != kind || m.Seq != seq {
			t.Fatalf("the peer is told %+v, %v, not %s %d", m, err, kind, seq)
		}
	}
	r.leaveService(1)
	expect(peerproto.TypeDrain, 1)
	r.link.peerDrained(r.s, 1)
	r.s.publishing.Lock() // what the node serves is just being written
	r.resumeService(1)
	r.leaveService(1)
	r.s.publishing.Unlock()
	expect(peerproto.TypeUndrain, 0)
	expect(peerproto.TypeDrain, 2)
	if busy := r.undrained(); len(busy) != 1 {
		t.Errorf("it waits for %v, and the peer has not answered", busy)
	}
	r.link.peerDrained(r.s, 2)
	if busy := r.undrained(); len(busy) != 0 {
		t.Errorf("it waits for %v", busy)
	}
}

// A core that has taken over and is told to stop waits for the peers that the last one was connected with: what they wait for is to
// reach them. It does not for those that were lost otherwise, nor longer than it may.
func TestDrainWaitsForPeersToReturn(t *testing.T) {
	for name, holding := range map[string]func(*linkRig) *session{
		"of the last core": func(r *linkRig) *session { return sessionOfLastCore(r.link) },
		"lost":             func(r *linkRig) *session { return r.s },
		"given up":         func(*linkRig) *session { return nil },
	} {
		r := newLinkRig(t)
		var lines bytes.Buffer
		r.log, r.identity = zerolog.New(&lines), new(handoff.Node)
		r.link.session, r.link.holding = nil, holding(r)
		if err := r.drain(); err != nil { // within 0 s
			t.Error(err)
		}
		if waited := strings.Contains(lines.String(), `"peers":["a"]`); waited != (name == "of the last core") {
			t.Errorf("%s: %s", name, &lines)
		}
		r.stop()
	}
}

// A node that is told to stop waits for a peer whose link is lost meanwhile, as when that peer's core is replaced: the answers to what its
// handlers have done are to reach it. It does not when the peer is given up, nor for one that wants nothing, or has itself stopped.
func TestDrainWaitsForAPeerThatItLoses(t *testing.T) {
	class := config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 16}
	for name, c := range map[string]struct {
		lane, before bool
		loses        func(*linkRig)
		waits        bool
	}{
		"lost":              {lane: true, waits: true},
		"lost before":       {lane: true, before: true},
		"wants nothing":     {},
		"has said so":       {lane: true, loses: func(r *linkRig) { r.tellService(r.s); r.link.peerDrained(r.s, r.drains) }},
		"stops itself":      {lane: true, loses: func(r *linkRig) { r.link.peerDrains(r.s, 1) }},
		"stopped, and back": {lane: true, loses: func(r *linkRig) { r.link.peerDrains(r.s, 1); r.link.peerUndrains(r.s) }, waits: true},
	} {
		r := newLinkRig(t)
		r.identity = new(handoff.Node)
		_, said := r.openings()
		go func() {
			for range said { // the peer reads all
			}
		}()
		if c.lane {
			d := r.domainNamed("default")
			d.making.Lock()
			_, err := d.findOrMakeMirror(agent.Opening{Session: r.s, Seq: 1}, class, 0, 0, nil)
			d.making.Unlock()
			if err != nil {
				t.Fatal(err)
			}
		}
		lose := r.serveLink()
		begin := func() {
			r.mu.Lock()
			r.draining = true
			r.beginDrain()
			r.mu.Unlock()
		}
		if !c.before {
			begin()
		}
		if c.loses != nil {
			c.loses(r)
		}
		lose()
		if c.before {
			begin()
		}
		if busy := r.awaited(); len(busy) != 0 != c.waits {
			t.Errorf("%s: it waits for %v", name, busy)
		}
		r.stop()
	}
}

// The same from its beginning to its end, which is when nobody waits for the peer any more.
func TestDrainEndsWithAPeerThatIsGivenUp(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.identity, r.cfg.Node.DrainTimeout = new(handoff.Node), time.Hour
	_, said := r.openings()
	d := r.domainNamed("default")
	d.making.Lock()
	_, err := d.findOrMakeMirror(agent.Opening{Session: r.s, Seq: 1}, r.cfg.Classes[0], 0, 0, nil)
	d.making.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	lose := r.serveLink()
	over := make(chan error, 1)
	go func() { over <- r.drain() }()
	for m := range said {
		if m.Type == peerproto.TypeDrain {
			break
		}
	}
	go func() {
		for range said { // the peer reads all
		}
	}()
	lose()
	if busy := r.awaited(); len(busy) != 1 {
		t.Errorf("it waits for %v", busy)
	}
	select {
	case <-over:
		t.Error("it has not waited for the peer")
	case <-time.After(10 * drainStep): // it has looked some times
	}
	r.mu.Lock()
	r.link.holding = nil // as hold does
	r.mu.Unlock()
	select {
	case err := <-over:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for a peer that is given up")
	}
}

// A node that stops, or leaves service, waits for no peer to read that.
func TestServiceIsToldBeside(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.identity = new(handoff.Node)
	r.link.session, r.link.drained = r.s, true // it was out of service, and is back
	left := make(chan []string, 1)
	go func() {
		r.leaveService(1)
		left <- r.undrained()
	}()
	select {
	case busy := <-left:
		if len(busy) != 1 {
			t.Errorf("it waits for %v", busy)
		}
	case <-time.After(time.Minute): // less than a write may take
		t.Error("it waits for the peer to read")
	}
}

// A peer that was draining when its link was lost does not say so in the next session: what still follows from the last one
// closes no lane of the next.
func TestDrainOfALostSession(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	d := r.domainNamed("default")
	o, err := d.outgoing(place{node: "a", session: r.s}, config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 16}, 0)
	if err != nil {
		t.Fatal(err)
	}
	drains := func() (does bool) {
		d.agent.Commands.Call(func() { does = o.lane.Draining })
		return does
	}
	r.lanesDrained(r.s, make(chan struct{}))
	if !drains() {
		t.Error("the lane takes requests for a node that drains")
	}
	o.undrain(d, r.link) // as the next session does
	r.s.end(errStopping)
	close(r.s.done) // as serve does
	if r.lanesDrained(r.s, make(chan struct{})); drains() {
		t.Error("the lane takes none, because of a session that has ended")
	}
}

// No domain sends to a peer that drains while what another domain has under way there takes its time.
func TestDrainOfAllDomainsAtOnce(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	if err := r.addDomain(config.Domain{Name: "other"}, r.agent, nil); err != nil {
		t.Fatal(err)
	}
	class := config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 16}
	lanes := map[string]*outgoing{}
	for _, d := range r.allDomains() {
		o, err := d.outgoing(place{node: "a", session: r.s}, class, 0)
		if err != nil {
			t.Fatal(err)
		}
		lanes[d.name] = o
		r.agent.Commands.Call(func() {
			o.lane.Closed.Store(0)
			o.lane.Ring.SetState(slots.LaneOpen)
		})
	}
	busy := lanes["default"].lane.Ring
	u, err := busy.Claim(1, 1)
	if err != nil || !busy.Publish(u, 1) {
		t.Fatal(err)
	}
	undrained, over := make(chan struct{}), make(chan bool, 1)
	go func() { over <- r.lanesDrained(r.s, undrained) }()
	limit := time.Now().Add(time.Minute)
	for _, o := range lanes {
		for drains := false; !drains; {
			r.agent.Commands.Call(func() { drains = o.lane.Draining })
			if !drains && time.Now().After(limit) {
				t.Fatal("a lane takes requests for a node that drains")
			}
		}
	}
	select {
	case <-over:
		t.Error("it does not wait for what is under way")
	default:
	}
	close(undrained)
	if <-over {
		t.Error("it is drained, with a request under way")
	}
}

// A peer hears that this node takes no requests before it hears what there is to be had: who waits there for that would ask for a lane in
// between, and be refused.
func TestDrainIsToldBeforeTheDirectory(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.identity, r.outage, r.drains = new(handoff.Node), &outage{}, 1
	defer r.serveLink()()
	drains := false
	for reader := bufio.NewReader(r.peer); ; {
		m, err := peerproto.Read(reader, peerproto.MaxFrame)
		if err != nil {
			t.Fatal(err)
		}
		drains = drains || m.Type == peerproto.TypeDrain
		if m.Type == peerproto.TypeDirectory {
			break
		}
	}
	if !drains {
		t.Error("the directory comes first")
	}
}

// Who has found a method on a peer that begins to drain just then waits for it to be back, as one who has not found it yet.
func TestPeerThatBeginsToDrain(t *testing.T) {
	key := methodKey{"s", "m"}
	var last error
	for range 5 { // in case this stands still for as long as it is waited
		r := newLinkRig(t)
		_, said := r.openings()
		r.cfg.Lanes.PerPeer = 1
		close(r.s.repeated) // there are no regions
		r.link.session, r.link.listed = r.s, true
		r.link.directory = map[string]map[methodKey]peerproto.Listing{"default": {key: {ID: 1}}}
		over := make(chan error, 1)
		go func() {
			_, _, err := r.findLanes(t.Context(), nil, r.domainNamed("default"), attach.Target{Node: "a", Service: "s", Method: "m"}, 2*time.Second)
			over <- err
		}()
		open := <-said
		r.link.peerDrains(r.s, 1)
		if err := r.s.handle(&peerproto.Message{Type: peerproto.TypeRefuse, Seq: open.Seq, Reason: "node a is draining"}); err != nil {
			t.Fatal(err)
		}
		last = <-over
		r.stop()
		if !errors.Is(last, attach.ErrNoService) {
			t.Fatal(last)
		}
		if !strings.Contains(last.Error(), "refuses") {
			return // it has looked again, until the time was over
		}
	}
	t.Errorf("it does not wait: %v", last)
}

// A peer that leaves service and comes back over and over is listened to at a pace that others do not notice, and so is one that says again
// and again what it serves.
func TestPeerThatChangesItsMindIsPaced(t *testing.T) {
	r := newLinkRig(t)
	defer r.stop()
	r.link.session = r.s
	const times = 5
	for what, c := range map[string]struct {
		says  []peerproto.Type
		floor time.Duration
	}{
		"service":   {[]peerproto.Type{peerproto.TypeDrain, peerproto.TypeUndrain}, serviceFloor},
		"directory": {[]peerproto.Type{peerproto.TypeDirectory}, directoryFloor},
	} {
		began := time.Now()
		for range times {
			for _, k := range c.says {
				if err := r.s.handle(&peerproto.Message{Type: k, Seq: 1}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if took, least := time.Since(began), c.floor*time.Duration(times*len(c.says)-1); took < least {
			t.Errorf("%s: %v, want %v or more", what, took, least)
		}
	}
}
