package tcp

import (
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

const (
	// helloTimeout is how long an incoming connection may take to say hello.
	helloTimeout = 5 * time.Second
	// maxPending bounds the connections that have not said hello yet. One more
	// pushes out the oldest: an honest hello comes with the first segment,
	// so whoever has waited longest is the least likely to be one.
	maxPending = 64
	// acceptRetry spaces attempts while the process is out of descriptors.
	acceptRetry = 50 * time.Millisecond
)

// arrival is a connection that named an endpoint's token.
type arrival struct {
	conn net.Conn
	from token
}

// accept takes connections until the device is closed.
func (d *Device) accept() {
	defer d.wg.Done()
	for {
		c, err := d.ln.Accept()
		switch {
		case err == nil:
			d.admit(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			retry := time.NewTimer(acceptRetry)
			select {
			case <-retry.C:
			case <-d.closed:
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
	case <-d.closed:
		_ = c.Close()
		return
	default:
	}
	if len(d.pending) == maxPending {
		// Its greeter sees the close, counts it and forgets it.
		_ = d.pending[0].Close()
		d.pending = slices.Delete(d.pending, 0, 1)
	}
	d.pending = append(d.pending, c)
	d.wg.Add(1)
	go d.greet(c)
}

// greet reads the hello of c and hands c to the endpoint it names.
func (d *Device) greet(c net.Conn) {
	defer d.wg.Done()
	var b [greetingSize]byte
	err := c.SetDeadline(time.Now().Add(helloTimeout))
	if err == nil {
		_, err = io.ReadFull(c, b[:])
	}
	var g greeting
	if err == nil {
		g, err = decodeGreeting(b[:], helloMagic)
	}
	if !d.settle(c, g, err == nil) {
		d.rejected.Add(1)
		_ = c.Close()
	}
}

// settle ends the pending state of c and, if its greeting is good, gives it to
// the endpoint with that token. The token is spent with it.
func (d *Device) settle(c net.Conn, g greeting, good bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.pending, c)
	if i < 0 {
		return false
	}
	d.pending = slices.Delete(d.pending, i, i+1)
	if !good {
		return false
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
		return false
	}
	delete(d.endpoints, found)
	// Never blocks: the channel holds one and the token is spent.
	found.arrived <- arrival{conn: c, from: g.from}
	return true
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
