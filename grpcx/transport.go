package grpcx

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// outgoing is the caller's end of a stream; *client.Stream is one.
type outgoing interface {
	// Send copies msg, and blocks while the peer has no room for it.
	Send(ctx context.Context, msg []byte) error
	// CloseSend says that nothing more is sent.
	CloseSend(ctx context.Context) error
	// Recv returns io.EOF after the handler's end of the stream has ended well.
	Recv(ctx context.Context) ([]byte, error)
	// Close gives the stream up, if it has not ended.
	Close() error
}

// incoming is the handler's end of a stream; *server.Stream is one.
type incoming interface {
	// Context has the caller's deadline, and ends when the caller gives up.
	Context() context.Context
	// Recv returns io.EOF after the caller's CloseSend.
	Recv() ([]byte, error)
	// Send copies msg, and blocks while the peer has no room for it.
	Send(msg []byte) error
	// Abort ends the context with err as its cause, and every Send and Recv with it.
	Abort(err error)
}

// caller opens streams.
type caller interface {
	// open opens a stream and sends a first message, which it copies.
	open(ctx context.Context, service, method string, first []byte) (outgoing, error)
	// absent says what is not there, after an open that failed because something is
	// not there. It may know that from before, but not from before the time since.
	absent(ctx context.Context, service, method string, since time.Time) absence
	// node is where the caller runs, target the node that it calls, if it is always
	// the same.
	node() string
	target() string
}

// host offers methods.
type host interface {
	handle(service, method string, h func(incoming) error) error
	// withdraw has new calls go to other processes, until ctx ends.
	withdraw(ctx context.Context) error
	// fetched waits until callers have received what handlers have sent.
	fetched(ctx context.Context) error
	node() string
}

// absence is what a call did not find. Of several nodes the one counts that has most of it.
type absence int

const (
	// noNode is said when the node is not there, takes no new requests, or serves nothing at all.
	noNode absence = iota
	// noService is said when the node serves something else.
	noService
	// noWay is said when the node has other methods of the service, and takes no new requests.
	noWay
	// noMethod is said when the node serves other methods of the service.
	noMethod
	// unreached is said when the node has the method itself.
	unreached
)

// splitMethod splits "/package.Service/Method".
func splitMethod(full string) (service, method string, err error) {
	rest, ok := strings.CutPrefix(full, "/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i < 0 {
		return "", "", fmt.Errorf("malformed method name: %.200q", full)
	}
	service, method = rest[:i], rest[i+1:]
	if err := checkName("service", service); err != nil {
		return "", "", err
	}
	return service, method, checkName("method", method)
}

// checkName returns an error for a name that rdmad cannot have.
func checkName(what, name string) error {
	if len(name) == 0 || len(name) > maxName {
		return fmt.Errorf("%s %.80q: rdmad's names have 1 to %d bytes", what, name, maxName)
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		default:
			return fmt.Errorf("%s %.80q: rdmad's names have only letters, digits, '.', '-' and '_'", what, name)
		}
	}
	return nil
}

// Addr is the address of a peer: where it runs. It is a net.Addr.
type Addr struct {
	// Node is the node that the peer runs on, as the peer says itself.
	Node string
}

// Network returns "rdmad".
func (Addr) Network() string { return "rdmad" }

// String returns the node's name.
func (a Addr) String() string { return a.Node }
