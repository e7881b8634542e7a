package grpcx

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

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
	return newConn(&rdmadCaller{conn: c, to: o.node}, o)
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
}

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

// absent asks the daemon what it knows. Only after an error, so it may cost.
func (c *rdmadCaller) absent(ctx context.Context, service string) absence {
	text, err := c.conn.Status(ctx)
	if err != nil {
		return noNode
	}
	var st struct {
		Services []struct{ Domain, Node, Service string }
	}
	if err := json.Unmarshal(text, &st); err != nil {
		return noNode
	}
	found := noNode
	for _, s := range st.Services {
		if s.Domain != c.conn.Domain() || c.to != "" && s.Node != c.to {
			continue
		}
		if s.Service == service {
			return noMethod
		}
		found = noService
	}
	return found
}

// rdmadHost offers methods of a server.Server.
type rdmadHost struct{ server *server.Server }

func (h rdmadHost) node() string { return h.server.Node() }

func (h rdmadHost) withdraw(ctx context.Context) error { return h.server.Withdraw(ctx) }

func (h rdmadHost) handle(service, method string, run func(incoming) error) error {
	return h.server.HandleStream(service, method, func(s *server.Stream) error { return run(s) })
}
