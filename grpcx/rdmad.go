package grpcx

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
)

// NewClient makes calls go over c, which stays the caller's: it must outlive the Conn.
// The error is an ErrInvalid for a node's name that cannot be one.
func NewClient(c *client.Conn, opts ...DialOption) (*Conn, error) {
	var o dialOptions
	for _, f := range opts {
		f(&o)
	}
	if o.node != "" {
		if err := checkName("node", o.node); err != nil {
			return nil, fmt.Errorf("grpcx: %w: %w", client.ErrInvalid, err)
		}
	}
	return newConn(newCaller(c, o.node), o)
}

// NewServer makes a server of gRPC services of s, which stays the caller's and may
// have other methods, too.
func NewServer(s *server.Server, opts ...ServerOption) *Server {
	return newServer(rdmadHost{s}, s.Serve, opts)
}

// rdmadCaller opens streams of a client.Conn.
type rdmadCaller struct {
	conn *client.Conn
	to   string
	// methods are those that were looked up, by service and method.
	methods sync.Map
	// offers is what the daemon knew of at the time asked. Who has the place in asking may touch them.
	asking chan struct{}
	offers []offer
	asked  time.Time
}

func newCaller(c *client.Conn, to string) *rdmadCaller {
	return &rdmadCaller{conn: c, to: to, asking: make(chan struct{}, 1)}
}

// offer is a service of a node.
type offer struct{ Domain, Node, Service string }

// offersFor is how long an answer is good for all calls that fail: the daemon says everything that it knows, and
// callers of a service that is not there should not keep it busy.
const offersFor = 100 * time.Millisecond

type methodName struct{ service, method string }

func (c *rdmadCaller) node() string   { return c.conn.Node() }
func (c *rdmadCaller) target() string { return c.to }

func (c *rdmadCaller) open(ctx context.Context, service, name string, first []byte) (outgoing, error) {
	key := methodName{service, name}
	m, ok := c.methods.Load(key)
	if !ok {
		target := service + "/" + name
		if c.to != "" {
			target = c.to + "/" + target
		}
		looked, err := c.conn.Method(ctx, target)
		if err != nil {
			return nil, err
		}
		m, _ = c.methods.LoadOrStore(key, looked)
	}
	s, err := m.(*client.Method).StreamWith(ctx, first)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// absent says what of a service there is.
func (c *rdmadCaller) absent(ctx context.Context, service string) absence {
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return noNode
	}
	defer func() { <-c.asking }()
	if time.Since(c.asked) > offersFor {
		if err := c.ask(ctx); err != nil {
			return noNode
		}
	}
	found := noNode
	for _, o := range c.offers {
		if c.to != "" && o.Node != c.to {
			continue
		}
		if o.Service == service {
			return noMethod
		}
		found = noService
	}
	return found
}

// ask asks the daemon which services of the domain there are.
func (c *rdmadCaller) ask(ctx context.Context) error {
	text, err := c.conn.Status(ctx)
	if err != nil {
		return err
	}
	var st struct{ Services []offer }
	if err := json.Unmarshal(text, &st); err != nil {
		return err
	}
	c.offers, c.asked = c.offers[:0], time.Now()
	for _, o := range st.Services {
		if o.Domain == c.conn.Domain() {
			c.offers = append(c.offers, o)
		}
	}
	return nil
}

// rdmadHost offers methods of a server.Server.
type rdmadHost struct{ server *server.Server }

func (h rdmadHost) node() string { return h.server.Node() }

func (h rdmadHost) withdraw(ctx context.Context) error { return h.server.Withdraw(ctx) }

func (h rdmadHost) fetched(ctx context.Context) error { return h.server.Fetched(ctx) }

func (h rdmadHost) handle(service, method string, run func(incoming) error) error {
	return h.server.HandleStream(service, method, func(s *server.Stream) error { return run(s) })
}
