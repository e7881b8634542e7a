package client_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/slots"
)

// cable is what the data of a node's peers comes through, and which can damage it.
type cable struct {
	listener net.Listener
	to       string
	all      sync.WaitGroup

	mu sync.Mutex
	// mark is what a request begins with whose header is damaged; nil for none.
	mark []byte
}

// newCable lays a cable, and returns the section [fabric] of the node that it leads to. The node must be started after that.
func newCable(t *testing.T) (c *cable, section string) {
	t.Helper()
	const node, end = "127.0.0.4", "127.0.0.3"
	for range 20 { // a port that is free at both ends
		l, err := net.Listen("tcp", net.JoinHostPort(end, "0"))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		c = &cable{listener: l, to: net.JoinHostPort(node, port)}
		free, err := net.Listen("tcp", c.to)
		if err == nil {
			_ = free.Close()
			break
		}
		_ = l.Close()
	}
	c.all.Go(c.accept)
	t.Cleanup(func() {
		_ = c.listener.Close()
		c.all.Wait()
	})
	return c, fmt.Sprintf("[fabric]\nprovider=\"tcp\"\nlisten=%q\nadvertise=%q\n", c.to, end)
}

func (c *cable) accept() {
	for {
		in, err := c.listener.Accept()
		if err != nil {
			return
		}
		c.all.Go(func() { c.carry(in) })
	}
}

// carry passes on what comes from a peer, and back, until one end is gone.
func (c *cable) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer out.Close()
	var back sync.WaitGroup
	back.Go(func() {
		pass(in, out, func([]byte) {})
		_ = in.Close() // ends the other direction
	})
	pass(out, in, c.damage)
	_ = out.Close()
	back.Wait()
}

// damage damages the request that is looked for, if it is in b.
func (c *cable) damage(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mark == nil {
		return
	}
	if i := bytes.Index(b, c.mark); i >= slots.HeaderSize {
		clear(b[i-slots.HeaderSize : i])
		c.mark = nil
	}
}

// pass passes on what look has seen.
func pass(to, from net.Conn, look func([]byte)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		look(buf[:n])
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// breakLane breaks the lane that a method is pinned to: the peer finds a request in it that no node sends.
func (c *cable) breakLane(t *testing.T, m *client.Method) {
	t.Helper()
	mark := []byte(rand.Text())
	c.mu.Lock()
	c.mark = mark
	c.mu.Unlock()
	daemontest.Eventually(t, "the lane breaks", func() error {
		if _, err := m.Call(t.Context(), mark); !errors.Is(err, client.ErrMaybeExecuted) {
			return fmt.Errorf("the mark did not come in one piece with its header: %v", err)
		}
		return nil
	})
}
