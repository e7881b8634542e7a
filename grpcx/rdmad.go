package grpcx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
)

// NewClient makes calls go over c, which stays the caller's: it must outlive the Conn. When c has ended, because the daemon of this
// node has gone, all calls fail with codes.Unavailable, also those that wait: a Conn made by Dial attaches again.
// The error is an ErrInvalid for a node's name that cannot be one, and for AttachOptions.
func NewClient(c *client.Conn, opts ...DialOption) (*Conn, error) {
	o, err := readDialOptions(opts)
	if err != nil {
		return nil, err
	}
	if len(o.attach) > 0 {
		return nil, fmt.Errorf("grpcx: %w: AttachOptions are for Dial", client.ErrInvalid)
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
	// offers is what the daemon knew of at the time asked, or somewhat earlier: the question was begun then. Who has the
	// place in asking may touch them.
	asking       chan struct{}
	offers       []offer
	begun, asked time.Time
}

func newCaller(c *client.Conn, to string) *rdmadCaller {
	return &rdmadCaller{conn: c, to: to, asking: make(chan struct{}, 1)}
}

// offer is a method of a node, as the daemon's status has it.
type offer struct{ Domain, Node, Service, Method, State string }

// draining is the State of what a node has that takes no new requests.
const draining = "draining"

// lacks says what a call of a method would not find if there were only this offer.
func (o *offer) lacks(service, method string) absence {
	switch {
	case o.Service == service && o.Method == method:
		return unreached
	case o.Service == service && o.State == draining:
		return noWay
	case o.State == draining:
		return noNode // what else it has does not say what there is when it takes requests again
	case o.Service == service:
		return noMethod
	}
	return noService
}

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

// noStream ends the error of a stream that a handler's process has refused to begin because its method takes none. Otherwise it is
// that of a method that nobody serves, and package client does not tell them apart.
const noStream = "the method is no stream"

// refusedStream reports that a handler's process has the method, and that it takes no streams.
func refusedStream(err error) bool {
	return errors.Is(err, client.ErrNoService) && strings.HasSuffix(err.Error(), noStream)
}

// absent says what of a method there is.
func (c *rdmadCaller) absent(ctx context.Context, service, method string, since time.Time) absence {
	select {
	case c.asking <- struct{}{}:
	case <-ctx.Done():
		return noNode
	}
	defer func() { <-c.asking }()
	if time.Since(c.asked) > offersFor || c.begun.Before(since) {
		if err := c.ask(ctx); err != nil {
			return noNode
		}
	}
	found := noNode
	for _, o := range c.offers {
		if c.to == "" || o.Node == c.to {
			found = max(found, o.lacks(service, method))
		}
	}
	return found
}

// ask asks the daemon which services of the domain there are.
func (c *rdmadCaller) ask(ctx context.Context) error {
	begun := time.Now()
	text, err := c.conn.Status(ctx)
	if err != nil {
		return err
	}
	var st struct{ Services []offer }
	if err := json.Unmarshal(text, &st); err != nil {
		return err
	}
	c.offers, c.begun, c.asked = c.offers[:0], begun, time.Now()
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
