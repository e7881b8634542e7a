package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// cutter stands between two nodes: what one of them dials goes through it to the other,
// until it is cut. It carries the bootstrap connection. The connections of the fabric
// go straight, but end with the session.
type cutter struct {
	t        *testing.T
	listener *net.TCPListener
	target   string
	all      sync.WaitGroup

	// renew makes each end of a connection take the other for a later core of the same
	// node: what a core keeps to itself is lost with every connection then.
	renew atomic.Bool
	cores atomic.Int64
	// until, if there is one, is the text of a message that is lost the next time, with the
	// connections. It counts for connections that come up later.
	until atomic.Pointer[[]byte]

	mu    sync.Mutex
	down  bool // connections are closed as they come
	conns map[net.Conn]struct{}
}

// newCutter makes one for connections to target. It ends with the test.
func newCutter(t *testing.T, target string) *cutter {
	t.Helper()
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{t: t, listener: l.(*net.TCPListener), target: target, conns: make(map[net.Conn]struct{})}
	c.all.Go(c.serve)
	t.Cleanup(func() {
		_ = l.Close()
		c.cut(true)
		c.all.Wait()
	})
	return c
}

// address is what a node is told instead of the target's.
func (c *cutter) address() string { return c.listener.Addr().String() }

func (c *cutter) serve() {
	for {
		from, err := c.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", c.target)
		if err != nil {
			_ = from.Close() // the node is not there
			continue
		}
		if !c.enter(from, to) {
			continue
		}
		c.all.Go(func() { c.carry(from, to) })
		c.all.Go(func() { c.carry(to, from) })
	}
}

// enter notes the two halves of a connection, or closes them.
func (c *cutter) enter(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range conns {
		if c.down {
			_ = conn.Close()
			continue
		}
		c.conns[conn] = struct{}{}
	}
	return !c.down
}

// carry copies one direction until either half ends.
func (c *cutter) carry(from, to net.Conn) {
	if !c.renew.Load() || c.introduce(from, to) == nil {
		if until := c.until.Load(); until != nil {
			c.carryUntil(from, to, *until)
		}
		_, _ = io.Copy(to, from)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range []net.Conn{from, to} {
		delete(c.conns, conn)
		_ = conn.Close()
	}
}

var coreNumber = regexp.MustCompile(`"core":[0-9]+`)

// introduce carries a hello with the number of another core.
func (c *cutter) introduce(from io.Reader, to io.Writer) error {
	message, err := nextMessage(from)
	if err != nil {
		return err
	}
	hello := coreNumber.ReplaceAll(message, fmt.Appendf(nil, `"core":%d`, c.cores.Add(1)))
	return sendMessage(to, hello)
}

// carryUntil carries messages until one that contains text: that is lost, with all
// connections. It returns as well when another message of the kind was lost meanwhile.
func (c *cutter) carryUntil(from io.Reader, to io.Writer, text []byte) {
	for c.until.Load() != nil {
		message, err := nextMessage(from)
		if err != nil {
			return
		}
		if lost := c.until.Load(); lost != nil && bytes.Contains(message, text) && c.until.CompareAndSwap(lost, nil) {
			c.cut(false)
			return
		}
		if err := sendMessage(to, message); err != nil {
			return
		}
	}
}

// nextMessage reads one message of two daemons to each other.
func nextMessage(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(from, message)
	return message, err
}

func sendMessage(to io.Writer, message []byte) error {
	_, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...))
	return err
}

// cut resets all connections, in the middle of whatever they carry. With stay no others
// come up until join.
func (c *cutter) cut(stay bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = stay
	n = len(c.conns) / 2
	for conn := range c.conns {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
	clear(c.conns)
	return n
}

// join lets connections come up again.
func (c *cutter) join() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
}

// newCutPair starts nodes a and b, which reach each other through cutters.
func newCutPair(t *testing.T, s sandbox.Settings) (*cluster, []*cutter) {
	t.Helper()
	var cutters []*cutter
	c := newClusterVia(t, s, func(address string) string {
		k := newCutter(t, address)
		cutters = append(cutters, k)
		return k.address()
	}, "a", "b")
	c.start("a", "b")
	return c, cutters
}
