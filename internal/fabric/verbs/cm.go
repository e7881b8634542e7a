//go:build verbs && cgo && linux

package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	// cmBacklog bounds the requests that the kernel holds for the listener.
	cmBacklog = 128
	// cmEvents is more than the events of a connection before it is established.
	cmEvents = 8
)

var (
	errIntroduction = errors.New("the other side is not the peer of the given address")
	errRejected     = errors.New("the peer rejected the connection: its endpoint is closed, or not the one of the given address")
	errUnreachable  = errors.New("the peer's device does not answer")
)

// manager negotiates the connections of a device by librdmacm: a listener and the
// identifiers of its connections, whose events the device's goroutine takes.
type manager struct {
	dev      *Device
	channel  *cmChannel
	fd       int
	listener *conn
	listen   netip.AddrPort

	mu   sync.Mutex
	ends map[cmID]*cmEnd
}

// cmEnd is an identifier of a connection, or of a request for one.
type cmEnd struct {
	*conn
	m *manager
	e *Endpoint
	// events are for Connect. There is always room until it has returned.
	events chan cmEvent
	// from is the peer's token, of a request.
	from token
}

// newManager starts to listen.
func newManager(d *Device, o fabric.Options) (*manager, error) {
	at, err := d.listenAddress(o)
	if err != nil {
		return nil, err
	}
	fail := func(err error) error {
		return &OpenError{Key: "connect", Err: err, Detail: "listening for connections by rdmacm at " + at.String()}
	}
	m := &manager{dev: d, ends: make(map[cmID]*cmEnd)}
	if m.channel, err = openChannel(); err != nil {
		return nil, &OpenError{Key: "connect", Err: err, Detail: "there is no rdmacm; are the modules rdma_cm and rdma_ucm loaded?"}
	}
	m.fd = m.channel.fd
	if m.listener, err = m.channel.newConn(d.cfg.TrafficClass); err != nil {
		m.channel.close()
		return nil, fail(err)
	}
	var port uint16
	err = m.listener.bind(at)
	if err == nil {
		err = m.checkDevice(m.listener, at.Addr())
	}
	if err == nil {
		port, err = m.listener.listen(cmBacklog)
	}
	if err != nil {
		err = errors.Join(fail(err), m.close())
		return nil, err
	}
	m.listen = netip.AddrPortFrom(at.Addr(), port)
	return m, nil
}

// listenAddress says where to listen: the address of Options.Listen if it names
// one, else that of Options.Advertise if it is the port's, else that of the GID.
func (d *Device) listenAddress(o fabric.Options) (netip.AddrPort, error) {
	addr, port := d.gid.Addr.Unmap(), uint64(0)
	for _, a := range addressesOf(o.Advertise) {
		if slices.ContainsFunc(d.port.GIDs, func(g GID) bool { return g.Addr.Unmap() == a }) {
			addr = a
			break
		}
	}
	if o.Listen != "" {
		host, p, err := net.SplitHostPort(o.Listen)
		if err == nil {
			port, err = strconv.ParseUint(p, 10, 16)
		}
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("verbs: address %q to listen on: %w", o.Listen, err)
		}
		if a, err := netip.ParseAddr(host); err == nil && !a.IsUnspecified() && !a.IsLoopback() {
			addr = a.Unmap()
		}
	}
	if d.port.LinkLayer == linkInfiniBand && addr == d.gid.Addr.Unmap() {
		return netip.AddrPort{}, &OpenError{Key: "connect", Err: fabric.ErrNotSupported,
			Detail: "rdmacm on InfiniBand needs fabric.listen to name the IP address of the port"}
	}
	if addr.Is6() && addr.IsLinkLocalUnicast() {
		return netip.AddrPort{}, &OpenError{Key: "connect", Err: fabric.ErrNotSupported,
			Detail: fmt.Sprintf("rdmacm cannot use the link-local address %s: ip address add another, or choose one by verbs.gid_index (rdmad devices) or fabric.listen", addr)}
	}
	return netip.AddrPortFrom(addr, uint16(port)), nil
}

// lookupTimeout bounds the search for the addresses of a name: a name server that does not answer takes ten seconds.
const lookupTimeout = time.Second

// addressesOf returns the addresses of a host, which is an address itself or a name: none if this machine does not know it.
func addressesOf(host string) []netip.Addr {
	if host == "" {
		return nil
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	list, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range list {
		list[i] = list[i].Unmap()
	}
	return list
}

// checkDevice makes sure that the kernel chose the opened device for an address.
func (m *manager) checkDevice(n *conn, a netip.Addr) error {
	name, port, err := n.device()
	if err != nil {
		return err
	}
	if name != m.dev.name || port != m.dev.port.Number {
		return fmt.Errorf("the way to %s leads over %s port %d, not %s port %d", a, name, port, m.dev.name, m.dev.port.Number)
	}
	return nil
}

// close ends the manager; its connections have ended. The device's goroutine does
// not run any more.
func (m *manager) close() error {
	err := m.listener.destroy()
	m.mu.Lock()
	left := m.ends
	m.ends = nil
	m.mu.Unlock()
	for _, end := range left {
		err = errors.Join(err, end.destroy())
	}
	m.channel.close()
	return err
}

// serve handles events that have come. working is false if there will be none ever again, and more true if there may be
// some now.
func (m *manager) serve() (working, more bool) {
	for range heardAtOnce {
		// An identifier leaves the table before it is destroyed, with the lock
		// held: an event never finds a later identifier at the same address.
		m.mu.Lock()
		ev, ok, err := m.channel.next()
		end := m.ends[ev.id]
		m.mu.Unlock()
		switch {
		case err != nil:
			return false, false
		case !ok:
			return true, false
		case ev.kind == cmRequest:
			m.request(ev)
		case ev.kind == cmDeviceRemoved:
			m.dev.broken(nil)
		case end != nil:
			end.handle(ev)
		}
	}
	return true, true
}

// request hands a connection request to the endpoint whose token it names, or
// rejects it. The token is spent with it.
func (m *manager) request(ev cmEvent) {
	end := &cmEnd{conn: &conn{id: ev.id}, m: m, events: make(chan cmEvent, cmEvents)}
	msg, err := decodeMessage(ev.private[:])
	if err == nil && msg.kind == msgReady {
		m.dev.mu.Lock()
		end.e = m.dev.endpoints[msg.to]
		m.dev.mu.Unlock()
		end.from = msg.from
	}
	if end.e != nil && end.e.requested(end) {
		return
	}
	_ = end.reject()
	_ = end.destroy()
}

// requested takes a request, the first of an endpoint that may be passive.
func (e *Endpoint) requested(end *cmEnd) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cm != nil || e.phase() > phaseConnecting {
		return false
	}
	e.adopt(end)
	e.hear()
	return true
}

// adopt makes end the endpoint's connection; e.mu is held.
func (e *Endpoint) adopt(end *cmEnd) {
	e.cm, end.e = end, e
	end.m.mu.Lock()
	end.m.ends[end.id] = end
	end.m.mu.Unlock()
}

// handle is called for every event of a connection.
func (c *cmEnd) handle(ev cmEvent) {
	select {
	case c.events <- ev:
	default:
	}
	if ev.kind == cmDisconnected {
		c.e.mu.Lock()
		c.e.peerGone()
		c.e.mu.Unlock()
	}
}

// leaveCM ends the connection of a closed endpoint. The peer gets a DISCONNECTED
// event.
func (e *Endpoint) leaveCM() error {
	e.mu.Lock()
	end, connected := e.cm, e.ready
	e.cm = nil
	e.mu.Unlock()
	if end == nil {
		return nil
	}
	end.m.mu.Lock()
	delete(end.m.ends, end.id)
	end.m.mu.Unlock()
	if connected {
		// It fails if the peer was faster, which is as good.
		_ = end.disconnect()
	}
	return end.destroy()
}

// connectCM runs this side's half of the negotiation.
func (e *Endpoint) connectCM(ctx context.Context, a address, role fabric.Role) error {
	ctx, cancel := context.WithTimeout(ctx, e.dev.cfg.ConnectTimeout)
	defer cancel()
	if role == fabric.Passive {
		return e.acceptCM(ctx, a)
	}
	return e.requestCM(ctx, a)
}

// steps is how long the kernel may take for a step; Connect's context ends earlier.
func (e *Endpoint) steps() time.Duration { return e.dev.cfg.ConnectTimeout }

// offer is what this side proposes.
func (e *Endpoint) offer(kind messageKind, a address) offer {
	l := e.dev.link(a, e.addr.mtu)
	return offer{
		private: message{kind: kind, to: a.token, from: e.addr.token}.encode(), qpn: e.qpn,
		responder: int(l.max_dest_rd), initiator: int(l.max_rd), retry: e.dev.cfg.RetryCount, rnrRetry: e.dev.cfg.RNRRetry,
	}
}

func (e *Endpoint) requestCM(ctx context.Context, a address) error {
	m := e.dev.cm
	end, err := e.beginCM()
	if err != nil {
		return err
	}
	if err := end.resolveAddress(netip.AddrPortFrom(m.listen.Addr(), 0), a.listen, e.steps()); err != nil {
		return err
	}
	if _, err := end.wait(ctx, cmAddressResolved); err != nil {
		return err
	}
	if err := m.checkDevice(end.conn, a.listen.Addr()); err != nil {
		return err
	}
	if err := end.resolveRoute(e.steps()); err != nil {
		return err
	}
	if _, err := end.wait(ctx, cmRouteResolved); err != nil {
		return err
	}
	if err := end.connect(e.offer(msgReady, a)); err != nil {
		return err
	}
	ev, err := end.wait(ctx, cmResponse)
	if err != nil {
		return err
	}
	msg, err := decodeMessage(ev.private[:])
	if err != nil || msg.kind != msgReadyBoth || msg.to != e.addr.token || msg.from != a.token {
		return errIntroduction
	}
	if err := e.readyCM(end, a); err != nil {
		return err
	}
	return end.establish()
}

// beginCM makes an identifier for the endpoint's own request, while the device is there.
func (e *Endpoint) beginCM() (*cmEnd, error) {
	if !e.dev.beginMaking() {
		return nil, fabric.ErrClosed
	}
	defer e.dev.making.Done()
	m := e.dev.cm
	n, err := m.channel.newConn(e.dev.cfg.TrafficClass)
	if err != nil {
		return nil, err
	}
	end := &cmEnd{conn: n, m: m, events: make(chan cmEvent, cmEvents)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase() != phaseConnecting || e.cm != nil {
		return nil, errors.Join(fabric.ErrClosed, n.destroy())
	}
	e.adopt(end)
	return end, nil
}

func (e *Endpoint) acceptCM(ctx context.Context, a address) error {
	select {
	case <-e.heard:
	case <-e.ended:
		return fabric.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	e.mu.Lock()
	end := e.cm
	e.mu.Unlock()
	if end == nil {
		return fabric.ErrClosed
	}
	if end.from != a.token {
		_ = end.reject()
		return errIntroduction
	}
	if err := e.readyCM(end, a); err != nil {
		_ = end.reject()
		return err
	}
	if err := end.accept(e.offer(msgReadyBoth, a)); err != nil {
		return err
	}
	_, err := end.wait(ctx, cmEstablished)
	return err
}

// readyCM connects the queue pair.
func (e *Endpoint) readyCM(end *cmEnd, a address) error {
	link := e.dev.link(a, e.addr.mtu)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.destroyed {
		return fabric.ErrClosed
	}
	if err := e.turn(func() error { return end.ready(e.lib, &link) }); err != nil {
		return err
	}
	e.ready = true
	return nil
}

// wait waits for an event of the given kind, or one that says that it will not come.
func (c *cmEnd) wait(ctx context.Context, kind cmEventKind) (cmEvent, error) {
	for {
		select {
		case ev := <-c.events:
			switch ev.kind {
			case kind:
				return ev, nil
			case cmRejected:
				return ev, fmt.Errorf("%w (reason %d)", errRejected, ev.status)
			case cmUnreachable:
				return ev, fmt.Errorf("%w (status %d)", errUnreachable, ev.status)
			case cmDisconnected:
				return ev, errPeerGone
			case cmFailed:
				return ev, fmt.Errorf("the connection manager failed with status %d", ev.status)
			}
		case <-c.e.lost:
			return cmEvent{}, errPeerGone
		case <-c.e.ended:
			return cmEvent{}, fabric.ErrClosed
		case <-ctx.Done():
			return cmEvent{}, ctx.Err()
		}
	}
}
