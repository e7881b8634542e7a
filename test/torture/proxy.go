package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// proxy stands between the nodes: a TCP listener whose connections are passed on to one
// node's own listener. What passes can be held up, slowed down or broken.
type proxy struct {
	name     string
	listener net.Listener
	to       string
	all      sync.WaitGroup

	mu     sync.Mutex
	pairs  map[*pair]struct{}
	closed bool
	// hole is not nil while nothing passes; it is closed when things pass again.
	hole chan struct{}
	// pause and chunk are how long each piece of at most chunk bytes takes; pause is 0
	// when nothing is slow.
	pause time.Duration
	chunk int
	// first is what the connections began with that came lately.
	first [][]byte
}

// pair is a connection and what it is passed on by.
type pair struct{ in, out *net.TCPConn }

const (
	// firstBytes is how much of the beginning of a connection is kept, and firstKept
	// of how many.
	firstBytes = 4096
	firstKept  = 8
	// piece is how much is passed on at a time.
	piece = 64 << 10
	// dialLimit bounds the way to a node, which may be down.
	dialLimit = 2 * time.Second
)

// newProxy listens on an address and passes connections on to another one.
func newProxy(name, listen, to string) (*proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", name, err)
	}
	p := &proxy{name: name, listener: l, to: to, pairs: map[*pair]struct{}{}}
	p.all.Go(p.accept)
	return p, nil
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.all.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// serve passes a connection on until either end of it is gone.
func (p *proxy) serve(in *net.TCPConn) {
	defer in.Close()
	p.gate(0) // a hole swallows new connections too
	out, err := net.DialTimeout("tcp", p.to, dialLimit)
	if err != nil {
		_ = in.SetLinger(0)
		return
	}
	defer out.Close()
	q := &pair{in, out.(*net.TCPConn)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.pairs[q] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pass(q.out, q.in, true) })
	both.Go(func() { p.pass(q.in, q.out, false) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, q)
	p.mu.Unlock()
}

// pass passes bytes on in one direction. An end is passed on as an end, a reset as a
// reset.
func (p *proxy) pass(to, from *net.TCPConn, record bool) {
	buf := make([]byte, piece)
	var first []byte
	for {
		n, err := from.Read(buf[:p.gate(0)])
		if record && n > 0 && len(first) < firstBytes {
			first = append(first, buf[:min(n, firstBytes-len(first))]...)
			p.remember(first)
		}
		if n > 0 {
			p.gate(n)
			if _, werr := to.Write(buf[:n]); werr != nil {
				_ = from.SetLinger(0)
				_ = from.Close()
				return
			}
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			_ = to.CloseWrite()
		} else {
			_ = to.SetLinger(0)
			_ = to.Close()
		}
		return
	}
}

// gate waits while nothing may pass, and as long as n bytes take. It returns how much may
// be read at once.
func (p *proxy) gate(n int) int {
	p.mu.Lock()
	hole, pause, chunk := p.hole, p.pause, p.chunk
	p.mu.Unlock()
	if hole != nil {
		<-hole
	}
	if pause == 0 {
		return piece
	}
	if n > 0 {
		time.Sleep(pause)
	}
	return chunk
}

// remember keeps what a connection began with.
func (p *proxy) remember(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first = append(p.first, append([]byte(nil), b...)); len(p.first) > firstKept {
		p.first = p.first[1:]
	}
}

// heard returns what connections began with.
func (p *proxy) heard() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([][]byte(nil), p.first...)
}

// reset ends all connections with a reset to both sides and returns how many there were.
func (p *proxy) reset() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q := range p.pairs {
		for _, c := range []*net.TCPConn{q.in, q.out} {
			_ = c.SetLinger(0)
			_ = c.Close()
		}
	}
	return len(p.pairs)
}

// halfClose ends one direction of all connections.
func (p *proxy) halfClose(in bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for q := range p.pairs {
		if in {
			_ = q.in.CloseWrite()
		} else {
			_ = q.out.CloseWrite()
		}
	}
}

// swallow lets nothing pass until the end of the silence.
func (p *proxy) swallow(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.hole == nil && !p.closed:
		p.hole = make(chan struct{})
	case !on && p.hole != nil:
		close(p.hole)
		p.hole = nil
	}
}

// slow makes every piece of at most chunk bytes take a time; 0 ends that.
func (p *proxy) slow(pause time.Duration, chunk int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause, p.chunk = pause, chunk
}

// close ends everything and returns when nothing is left.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.swallow(false)
	p.slow(0, 0)
	p.reset()
	p.all.Wait()
}
