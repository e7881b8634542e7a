package daemon

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/poller"
)

// linkRig is node b with one domain, "default", and a session with node a.
type linkRig struct {
	*conductor
	dev   *strictDevice
	agent *agent.Agent
	link  *link
	s     *session
	// peer is node a's end of the connection, on which nothing is kept that is not read.
	peer net.Conn
}

// newLinkRig has no write of the node be given up, however long the test stands still: a peer that does not read is waited for.
func newLinkRig(t *testing.T) *linkRig {
	t.Helper()
	limit := peerWriteTimeout
	t.Cleanup(func() { peerWriteTimeout = limit })
	peerWriteTimeout = time.Hour
	inner, err := fabrictest.NewFake().Open(fabric.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dev := &strictDevice{Device: inner, waiting: make(chan struct{}, 1)}
	c := &conductor{cfg: &config.Config{}, log: zerolog.Nop(), node: "b", fabrics: []*fabrics.Fabric{{Name: "tcp", Device: dev}}, links: map[string]*link{}, formerLinks: map[string]*link{},
		changed: make(chan struct{}), retired: map[*domain]struct{}{}, held: map[*domain]struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	a, err := agent.New("test", agent.IdleStrategy{}, 16, []fabric.Device{dev}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	a.Start(&c.agentsDone)
	if err := c.addDomain(config.Domain{Name: "default"}, a, nil); err != nil {
		t.Fatal(err)
	}
	l := newLink(c, config.Peer{Name: "a", Address: "x"})
	c.links["a"] = l
	ours, theirs := net.Pipe()
	mine := c.hello(l).Hello
	h := *mine
	h.Node, h.Session = "a", 7
	ch := &peerauth.Channel{Conn: ours, Raw: ours}
	s, err := newSession(l, ch, bufio.NewReader(ch), &h, mine, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &linkRig{conductor: c, dev: dev, agent: a, link: l, s: s, peer: theirs}
}

// stop ends what the rig has begun.
func (r *linkRig) stop() {
	r.cancel()
	_ = r.peer.Close()
	r.agent.Commands.Do(func() { r.agent.Stop = true })
	r.agentsDone.Wait()
	r.tasks.Wait()
}

// serveLink has the rig's session served until the function that it returns is called. The peer may take its time to say
// which regions it has.
func (r *linkRig) serveLink() (end func()) {
	r.cfg.Node.LinkHold = time.Hour
	r.link.session = r.s
	served := make(chan struct{})
	go func() {
		defer close(served)
		r.link.serveSession(r.s)
	}()
	return func() {
		r.s.end(errStopping)
		<-served
	}
}

// openings returns how a peer opens lane number 0, and what ends the waiting for all of these when the test is over. It reads what
// the node says to the peer.
func (r *linkRig) openings() (open func(seq uint64) error, said chan *peerproto.Message) {
	class := config.Class{Name: "c", SlotSize: 128, Slots: 64, MaxRun: 16}
	r.cfg.Classes = []config.Class{class}
	said = make(chan *peerproto.Message, 100)
	go func() {
		defer close(said)
		for reader := bufio.NewReader(r.peer); ; {
			m, err := peerproto.Read(reader, peerproto.MaxFrame)
			if err != nil {
				return
			}
			said <- m
		}
	}()
	return func(seq uint64) error {
		g := geometryOf(class)
		return r.openIncoming(r.s, &peerproto.Message{Type: peerproto.TypeOpen, Seq: seq, Lane: &peerproto.Lane{
			Domain: "default", Class: "c", Geometry: g, Address: []byte("x"), Key: fabric.RemoteKey{Len: uint64(g.SlotBytes())},
		}})
	}, said
}

// strictDevice refuses to close a protection domain with endpoints, as ibv_dealloc_pd does.
type strictDevice struct {
	fabric.Device
	domains atomic.Int64 // that are not closed
	waiting chan struct{}
}

func (d *strictDevice) CreateCQ(n int, p *poller.Poller) (fabric.CQ, error) {
	return d.Device.CreateCQ(n, p)
}
func (d *strictDevice) AllocPD() (fabric.ProtectionDomain, error) {
	pd, err := d.Device.AllocPD()
	if err == nil {
		d.domains.Add(1)
	}
	return &strictPD{ProtectionDomain: pd, dev: d}, err
}

type strictPD struct {
	fabric.ProtectionDomain
	dev  *strictDevice
	ends atomic.Int64
}

func (p *strictPD) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	e, err := p.ProtectionDomain.CreateEndpoint(a)
	if err == nil {
		p.ends.Add(1)
	}
	return &strictEnd{Endpoint: e, pd: p}, err
}
func (p *strictPD) Close() error {
	if p.ends.Load() > 0 {
		return errors.New("EBUSY: protection domain in use")
	}
	p.dev.domains.Add(-1)
	return p.ProtectionDomain.Close()
}

type strictEnd struct {
	fabric.Endpoint
	pd *strictPD
}

// Connect waits for a peer that does not come.
func (e *strictEnd) Connect(ctx context.Context, _ []byte, _ fabric.Role) error {
	e.pd.dev.waiting <- struct{}{}
	<-ctx.Done()
	time.Sleep(time.Millisecond) // what a device takes to give up
	return ctx.Err()
}
func (e *strictEnd) Close() error {
	e.pd.ends.Add(-1)
	return e.Endpoint.Close()
}
