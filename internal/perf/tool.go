package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf/link"
)

// Plan is what a Tool needs of a Session.
type Plan struct {
	// Event: wait for completions by sleeping in the kernel instead of polling.
	Event bool
	// Endpoints is the number of connections, 0: one.
	Endpoints int
	// SendDepth and RecvDepth are those of each endpoint.
	SendDepth, RecvDepth int
	// Buffer is the size of the side's registered memory in bytes, Access what the other
	// side may do with it.
	Buffer int
	Access fabric.Access
	// Regions are the sizes of further regions, with the same Access.
	Regions []int
}

// Tool is one of the programs of "rdmad perf" with what it is asked to do. Its exported
// fields travel to the server as JSON, so a Tool is a pointer to a struct.
type Tool interface {
	// Name is the tool's, the same on both sides.
	Name() string
	// Check refuses what cannot be done, or not with such a device, with an *InputError.
	// It is called on both sides; on the server's what it looks at came by the network.
	Check(fabric.Caps) error
	// Plan says what a side needs, after Check has passed.
	Plan(fabric.Role) Plan
	// Run does a side's part. What the client's returns is the result, of the type the tool
	// documents; the server's returns what it has to say itself, or nil.
	Run(ctx context.Context, s *Session) (any, error)
}

// InputError says that what was asked for cannot be done. Nothing was written.
type InputError struct{ error }

// Unwrap returns the reason.
func (e *InputError) Unwrap() error { return e.error }

// Inputf makes an *InputError.
func Inputf(format string, args ...any) error { return &InputError{fmt.Errorf(format, args...)} }

// IsInput reports whether a run was refused, by either side, before it had begun.
func IsInput(err error) bool {
	var input *InputError
	var mismatch *link.MismatchError
	var refused *link.RefusedError
	return errors.As(err, &input) || errors.As(err, &mismatch) || errors.As(err, &refused) && refused.Input
}

// Kinds of messages before a run.
const (
	kindSpec     = "spec"
	kindAccept   = "accept"
	kindEndpoint = "endpoint"
	kindBarrier  = "barrier"
)

// nothing is the body of a message that has none.
type nothing struct{}

// Observer is told what a run really uses, once it is connected and before it is measured.
// It may be nil.
type Observer func(*Session)

// Client runs a tool against the server at address (host:port). Errors for which IsInput is
// true have done nothing.
func Client(ctx context.Context, n *Node, address string, tool Tool, connected Observer) (any, error) {
	if err := tool.Check(n.Caps()); err != nil {
		return nil, err
	}
	l, err := dial(ctx, n.source, address, tool)
	if err != nil {
		return nil, err
	}
	result, err := asClient(ctx, n, l, tool, connected)
	return result, finish(l, err)
}

// dial reaches the server at address.
func dial(ctx context.Context, src Source, address string, tool Tool) (*link.Link, error) {
	l, err := link.Dial(ctx, address, src.greeting(tool))
	if errors.Is(err, unix.ECONNREFUSED) {
		err = fmt.Errorf("%w (no server listens there: start it first, on that machine, with: rdmad perf %s)", err, tool.Name())
	}
	return l, err
}

func asClient(ctx context.Context, n *Node, l *link.Link, tool Tool, connected Observer) (any, error) {
	if err := order(ctx, l, tool); err != nil {
		return nil, err
	}
	return n.run(ctx, l, fabric.Active, tool, connected)
}

// order tells the other side what it is to do.
func order(ctx context.Context, l *link.Link, tool Tool) error {
	if err := l.Send(kindSpec, tool); err != nil {
		return err
	}
	return l.Receive(ctx, kindAccept, &nothing{})
}

// Serve waits on ln for a client and does what it asks for, once, with a device that it
// opens for that. The tool's fields are those that the client sends. Connections that are no
// client's are told of by stranger, which may be nil.
func Serve(ctx context.Context, src Source, ln net.Listener, tool Tool, connected Observer, stranger func(error)) (any, error) {
	l, err := link.Accept(ctx, ln, src.greeting(tool), stranger)
	if err != nil {
		return nil, err
	}
	result, err := obey(ctx, src, l, hostOf(l.LocalAddr()), fabric.Passive, tool, connected)
	return result, finish(l, err)
}

// obey does what the other side orders.
func obey(ctx context.Context, src Source, l *link.Link, host string, role fabric.Role, tool Tool, connected Observer) (result any, err error) {
	var spec json.RawMessage
	if err := l.Receive(ctx, kindSpec, &spec); err != nil {
		return nil, err
	}
	if err := link.Strict(spec, tool); err != nil {
		return nil, Inputf("what the other side asks for: %w", err)
	}
	n, err := src.Open(host)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if err := tool.Check(n.Caps()); err != nil {
		return nil, err
	}
	if err := l.Send(kindAccept, nothing{}); err != nil {
		return nil, err
	}
	return n.run(ctx, l, role, tool, connected)
}

// run connects and measures.
func (n *Node) run(ctx context.Context, l *link.Link, role fabric.Role, tool Tool, connected Observer) (any, error) {
	s, err := n.Join(ctx, l, role, tool.Plan(role))
	if err != nil {
		return nil, err
	}
	if connected != nil {
		connected(s)
	}
	result, err := guard(ctx, l, func() (any, error) { return tool.Run(ctx, s) }, s.Close)
	n.held = errors.Is(err, ErrHeld)
	return result, err
}

// finish closes the link, and says why if that is for an error.
func finish(l *link.Link, err error) error {
	if err != nil && l.Err() == nil {
		l.Fail(err, IsInput(err))
	}
	// What it was for is over.
	_ = l.Close()
	return err
}
