// Package tenant makes services that live in a core.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/server"
)

// Register registers the methods of a service with a server that has just attached.
type Register func(ctx context.Context, s *server.Server) error

// call calls register. A panic of it is an error as any other, so that it ends the first start of a node: a core that
// dies of it would be followed by others for ever.
func (register Register) call(ctx context.Context, s *server.Server) (err error) {
	defer func() {
		if p := recover(); p != nil {
			_, _ = fmt.Fprintf(os.Stderr, "panic: %v\n\n%s", p, debug.Stack()) // as it would be without recover
			err = fmt.Errorf("the function that registers methods panicked: %v", p)
		}
	}()
	return register(ctx, s)
}

// again is how long a tenant waits before it attaches again.
const again = 100 * time.Millisecond

// Of returns a tenant that serves what register registers. It attaches again, and has all of it
// registered again, when the daemon has ended the attachment: then the domain has got new memory. That may
// happen once more before register has returned. Only the first time must go well, or the node does not start.
func Of(register Register, opts ...server.Option) daemon.Tenant {
	return func(ctx context.Context, socket string, settled func()) error {
		before := false // it has settled
		first := func() {
			if !before {
				settled()
			}
			before = true
		}
		for {
			err := serve(ctx, socket, register, first, opts)
			if before && errors.Is(err, server.ErrClosed) {
				err = nil
			}
			if err != nil || ctx.Err() != nil {
				return err
			}
			select {
			case <-time.After(again):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// serve attaches and serves until ctx or the attachment ends. Its error says why it could not.
func serve(ctx context.Context, socket string, register Register, settled func(), opts []server.Option) (err error) {
	s, err := server.Attach(ctx, socket, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := register.call(ctx, s); err != nil {
		return err
	}
	settled()
	if err := s.Serve(ctx); !errors.Is(err, server.ErrClosed) {
		return err
	}
	return nil
}
