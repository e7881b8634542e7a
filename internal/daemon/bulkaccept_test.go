package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
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

func newLinkRig(t *testing.T) *linkRig {
	t.Helper()
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

// A link that ends while the peer's connection for operations is being made leaves no protection domain.
func TestBulkAcceptedAtTheEndOfALink(t *testing.T) {
	left := 0
	for range 20 {
		r := newLinkRig(t)
		c, dev, s := r.conductor, r.dev, r.s
		go func() { _, _ = io.Copy(io.Discard, r.peer) }()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.acceptLane(s, &peerproto.Message{Type: peerproto.TypeOpen, Seq: 1, Lane: &peerproto.Lane{Domain: "default", Class: laneBulk, Bulk: true, Address: []byte("x")}})
		}()
		<-dev.waiting
		// As serve and serveSession do when the bootstrap connection ends.
		s.end(errors.New("connection reset"))
		close(s.done)
		c.lanesSuspended("a")
		<-done
		if dev.domains.Load() != 0 {
			left++
		}
		r.stop()
	}
	if left > 0 {
		t.Errorf("%d of 20 links that ended left a protection domain for ever", left)
	}
}
