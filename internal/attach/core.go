package attach

import (
	"context"

	"github.com/rdmad/rdmad/slots"
)

// Core is the core of a daemon to a service in the same process, which attaches like any
// other and may have its requests handled by the core's agent besides.
type Core interface {
	// Inline has the agent of a domain call serve for each request to a method of the
	// worker that is small and stands for itself, instead of waking the worker. Serve
	// runs on the agent's thread; the hint names the request, which is delivered to the
	// worker, and has to be finished when serve returns. Nil ends it for the method. ErrClosed: the domain or the
	// worker is gone.
	Inline(domain string, worker int, method uint32, serve func(slots.Hint)) error
	// Leave ends that for all methods of the worker. When it returns, the agent does
	// not call it and will not.
	Leave(domain string, worker int)
	// Stops reports whether the core is about to end, and with it all that lives in it.
	Stops() bool
}

type within struct {
	core   Core
	socket string
}

type withinKey struct{}

// Within returns a context by which Open knows that it attaches to the daemon whose core
// this process is, if it does so by the given socket.
func Within(ctx context.Context, c Core, socket string) context.Context {
	return context.WithValue(ctx, withinKey{}, within{c, socket})
}

// coreOf returns the core that Within has put into ctx for the socket, or nil.
func coreOf(ctx context.Context, socket string) Core {
	if w, _ := ctx.Value(withinKey{}).(within); w.socket == socket {
		return w.core
	}
	return nil
}
