package tcp

import (
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/turnstile"
)

const (
	// helloTimeout is how long an incoming connection may take to say hello.
	helloTimeout = 5 * time.Second
	// maxPending bounds the connections that have not said hello yet. One more
	// pushes out the oldest of the host that has most of them: an honest hello
	// comes with the first segments, so whoever has waited longest is the least
	// likely to be one.
	maxPending = 64
	// acceptRetry spaces attempts while the process is out of descriptors.
	acceptRetry = 50 * time.Millisecond
)

// arrival is a connection that named an endpoint's token.
type arrival struct {
	conn net.Conn
	sec  *secured // nil without TLS
	from token
}

// accept takes connections until the device is closed.
func (d *Device) accept() {
	defer d.wg.Done()
	for {
		c, err := d.ln.Accept()
		switch {
		case err == nil && d.cfg.Security != nil && !d.gate.Enter(c.RemoteAddr()):
			d.reject(c, ErrTooOften)
		case err == nil:
			d.admit(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			retry := time.NewTimer(acceptRetry)
			select {
			case <-retry.C:
			case <-d.life.Done():
				retry.Stop()
				return
			}
		}
	}
}

// admit lets a new connection say hello, at the cost of the oldest that has not.
func (d *Device) admit(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.life.Done():
		_ = c.Close()
		return
	default:
	}
	if len(d.pending) == maxPending {
		hosts := make([]string, len(d.pending))
		for i, c := range d.pending {
			hosts[i] = turnstile.HostOf(c.RemoteAddr())
		}
		i := turnstile.OldestOfMost(hosts)
		// Its greeter sees the close, counts it and forgets it.
		_ = d.pending[i].Close()
		d.pending = slices.Delete(d.pending, i, i+1)
	}
	d.pending = append(d.pending, c)
	d.wg.Add(1)
	go d.greet(c)
}

// greet reads the hello of c and hands c to the endpoint it names.
func (d *Device) greet(c net.Conn) {
	defer d.wg.Done()
	in := arrival{conn: c}
	g, err := d.hear(&in)
	if err != nil && in.sec != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		turnstile.Farewell(c) // while it can be pushed out
	}
	if err = d.settle(in, g, err); err != nil {
		d.reject(c, err)
	} else if in.sec != nil {
		d.gate.Return(c.RemoteAddr())
	}
}

// reject counts and closes a connection that is nobody's.
func (d *Device) reject(c net.Conn, err error) {
	d.rejected.Add(1)
	_ = c.Close()
	if s := d.cfg.Security; s != nil {
		s.Refused(c.RemoteAddr(), err)
	}
}

// hear does TLS, if there is any, and reads the hello.
func (d *Device) hear(in *arrival) (g greeting, err error) {
	if err := in.conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return g, err
	}
	stream := in.conn
	if s := d.cfg.Security; s != nil {
		in.sec = d.secure(in.conn, tls.Server, s.Server())
		stream = in.sec.tls
		if err := in.sec.tls.Handshake(); err != nil {
			return g, err
		}
	}
	var b [greetingSize]byte
	if _, err := io.ReadFull(stream, b[:]); err != nil {
		return g, err
	}
	return decodeGreeting(b[:], helloMagic)
}

// settle ends the pending state of in and, if its greeting is good, gives it to
// the endpoint with that token. The token is spent with it; a node that the endpoint
// was not made for cannot spend it. err is what was wrong already.
func (d *Device) settle(in arrival, g greeting, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.pending, in.conn)
	if i < 0 {
		return errCrowded
	}
	d.pending = slices.Delete(d.pending, i, i+1)
	if err != nil {
		return err
	}
	var found *Endpoint
	// Compare with all of them in constant time: how long a wrong guess takes
	// must not say how wrong it is.
	for e := range d.endpoints {
		if subtle.ConstantTimeCompare(e.addr.token[:], g.to[:]) == 1 {
			found = e
		}
	}
	if found == nil {
		return errNoToken
	}
	if in.sec != nil {
		if err := d.cfg.Security.Check(found.peer, in.sec.tls.ConnectionState()); err != nil {
			return err
		}
	}
	delete(d.endpoints, found)
	in.from = g.from
	// Never blocks: the channel holds one and the token is spent.
	found.arrived <- in
	return nil
}

// expect makes d hand the connection that names e's token to e.
func (d *Device) expect(e *Endpoint) {
	d.mu.Lock()
	d.endpoints[e] = struct{}{}
	d.mu.Unlock()
}

// forget undoes expect and closes a connection nobody has picked up.
func (d *Device) forget(e *Endpoint) {
	d.mu.Lock()
	delete(d.endpoints, e)
	d.mu.Unlock()
	select {
	case a := <-e.arrived:
		_ = a.conn.Close()
	default:
	}
}
