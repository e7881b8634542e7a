package perf

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/link"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

const (
	// connectTime bounds the connection of an endpoint.
	connectTime = 30 * time.Second
	// maxEndpoints bounds what the other side may ask for.
	maxEndpoints = 1024
	// MaxBuffer bounds the registered memory of a side.
	MaxBuffer = 1 << 30
)

// Session is one end of a connection for a measurement. It belongs to one goroutine, which
// owns its completion queue.
type Session struct {
	// Link is the control connection, of whoever made the session.
	Link *link.Link
	// Role is Active for the client.
	Role fabric.Role
	Caps fabric.Caps
	// Endpoints are connected, and tagged with their index.
	Endpoints []fabric.Endpoint
	// Region is the registered memory, Peer the other side's.
	Region fabric.MemoryRegion
	Peer   fabric.RemoteKey
	// Regions are those that Plan.Regions asks for, PeerRegions the other side's.
	Regions     []fabric.MemoryRegion
	PeerRegions []fabric.RemoteKey
	// Used says what this side really uses, and Theirs the other one.
	Used, Theirs Used
	// Event: completions are waited for in the kernel.
	Event bool

	waiter
	closers []func() error
}

// offer is what a side tells the other about its end.
type offer struct {
	Addresses [][]byte         `json:"addresses"`
	Buffer    fabric.RemoteKey `json:"buffer"`
	// Regions are what else it has.
	Regions []fabric.RemoteKey `json:"regions,omitempty"`
}

// Join makes a side's end of a connection and connects it; the other side must do the same
// over the same link. The caller must Close the Session before the link and the Node.
func (n *Node) Join(ctx context.Context, l *link.Link, role fabric.Role, plan Plan) (_ *Session, err error) {
	count := max(plan.Endpoints, 1)
	memory := plan.Buffer
	for _, n := range plan.Regions {
		if n < 1 || n > MaxBuffer {
			return nil, Inputf("a region of %d bytes: want 1 to %d", n, MaxBuffer)
		}
		memory += n
	}
	if count > maxEndpoints || plan.Buffer < 0 || memory > MaxBuffer {
		return nil, Inputf("%d endpoints and %d bytes: want at most %d and %d", count, memory, maxEndpoints, MaxBuffer)
	}
	s := &Session{Link: l, Role: role, Caps: n.Caps(), Event: plan.Event}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.open(n, plan, count); err != nil {
		return nil, err
	}
	own := offer{Buffer: s.Region.Remote()}
	for _, e := range s.Endpoints {
		own.Addresses = append(own.Addresses, e.Address())
	}
	for _, r := range s.Regions {
		own.Regions = append(own.Regions, r.Remote())
	}
	if err := l.Send(kindEndpoint, own); err != nil {
		return nil, err
	}
	var theirs offer
	if err := l.Receive(ctx, kindEndpoint, &theirs); err != nil {
		return nil, err
	}
	if len(theirs.Addresses) != count {
		return nil, &link.ProtocolError{Detail: fmt.Sprintf("%d addresses of endpoints instead of %d", len(theirs.Addresses), count)}
	}
	s.Peer, s.PeerRegions = theirs.Buffer, theirs.Regions
	if err := s.connect(ctx, theirs.Addresses); err != nil {
		return nil, err
	}
	s.Used = s.used(n)
	if err := l.Send(kindUsed, s.Used); err != nil {
		return nil, err
	}
	if err := l.Receive(ctx, kindUsed, &s.Theirs); err != nil {
		return nil, err
	}
	return s, nil
}

// open makes everything that needs no peer. What was made is closed by Close.
func (s *Session) open(n *Node, plan Plan, count int) error {
	pd, err := n.device.AllocPD()
	if err != nil {
		return err
	}
	s.onClose(pd.Close)
	if plan.Event {
		if err := s.makePoller(); err != nil {
			return err
		}
	}
	if s.Region, err = s.register(pd, plan.Buffer, plan.Access); err != nil {
		return err
	}
	for _, size := range plan.Regions {
		r, err := s.register(pd, size, plan.Access)
		if err != nil {
			return err
		}
		s.Regions = append(s.Regions, r)
	}
	// Closed before the memory, which is used until then.
	s.cq, err = n.device.CreateCQ(count*(plan.SendDepth+plan.RecvDepth+1), s.poller)
	if err != nil {
		return err
	}
	s.onClose(s.cq.Close)
	for i := range count {
		e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: s.cq, Tag: uint64(i), SendDepth: plan.SendDepth, RecvDepth: plan.RecvDepth})
		if err != nil {
			return err
		}
		s.onClose(e.Close)
		s.Endpoints = append(s.Endpoints, e)
	}
	s.link = s.Link
	s.explain = s.reason
	return nil
}

// register makes memory and registers it.
func (s *Session) register(pd fabric.ProtectionDomain, size int, access fabric.Access) (fabric.MemoryRegion, error) {
	// Not of Go's heap: the device writes to it behind the back of the collector, and a
	// whole number of pages is its own.
	memory, err := unix.Mmap(-1, 0, max(size, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("perf: memory of %d bytes: %w", size, err)
	}
	s.onClose(func() error { return unix.Munmap(memory) })
	r, err := pd.Register(memory, access)
	if err != nil {
		return nil, err
	}
	s.onClose(r.Close)
	return r, nil
}

// makePoller makes what an event-driven session sleeps on, and a bell that the link rings.
func (s *Session) makePoller() error {
	p, err := poller.New()
	if err != nil {
		return err
	}
	s.onClose(p.Close)
	bell, err := shm.NewBell()
	if err != nil {
		return err
	}
	s.onClose(bell.Close)
	if err := p.Add(bell.FD(), unix.EPOLLIN, quiet{bell}); err != nil {
		return err
	}
	s.Link.Notify(bell.Ring)
	s.onClose(func() error { s.Link.Notify(nil); return nil })
	s.poller, s.bell = p, bell
	return nil
}

// quiet silences a bell that has woken its sleeper.
type quiet struct{ bell *shm.Bell }

// Ready implements poller.Handler.
func (q quiet) Ready(int, uint32) { q.bell.Silence() }

func (s *Session) connect(ctx context.Context, addresses [][]byte) error {
	for i, e := range s.Endpoints {
		if s.Role == fabric.Passive {
			fabric.Expect(e, addresses[i])
		}
	}
	for i, e := range s.Endpoints {
		if len(addresses[i]) > fabric.MaxAddress {
			return &link.ProtocolError{Detail: fmt.Sprintf("an address of %d bytes", len(addresses[i]))}
		}
		if err := s.connectOne(ctx, e, addresses[i]); err != nil {
			return err
		}
	}
	return nil
}

// connectOne also ends when the other side has given up.
func (s *Session) connectOne(ctx context.Context, e fabric.Endpoint, address []byte) error {
	limited, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	defer context.AfterFunc(s.Link.Context(), cancel)()
	err := e.Connect(limited, address, s.Role)
	if err == nil {
		err = e.Activate()
	}
	if why := s.Link.Err(); err != nil && why != nil {
		return why
	}
	return err
}

// reason makes an error of a completion that failed.
func (s *Session) reason(c fabric.Completion) error {
	err := c.Status.Err()
	if int(c.Tag) < len(s.Endpoints) {
		if x, ok := s.Endpoints[c.Tag].(fabric.Explainer); ok && err != nil {
			err = x.Explain(c)
		}
	}
	if c.Op == fabric.OpDisconnect {
		if err == nil {
			return errors.New("the connection has ended")
		}
		return fmt.Errorf("the connection has ended: %w", err)
	}
	return fmt.Errorf("a work request has failed: %w", err)
}

// Barrier waits until the other side has come to the same point. Completions stay in their
// queue.
func (s *Session) Barrier(ctx context.Context) error {
	if err := s.Link.Send(kindBarrier, nothing{}); err != nil {
		return err
	}
	return s.Link.Receive(ctx, kindBarrier, &nothing{})
}

func (s *Session) onClose(f func() error) { s.closers = append(s.closers, f) }

// Close releases everything but the link, in reverse order.
func (s *Session) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}
