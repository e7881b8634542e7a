// Package tenant makes services that live in a core.
package tenant

import (
	"context"
	"errors"
	"time"

	"github.com/rdmad/rdmad/internal/daemon"
	"github.com/rdmad/rdmad/server"
)

// Register registers the methods of a service with a server that has just attached.
type Register func(ctx context.Context, s *server.Server) error

// again is how long a tenant waits before it attaches again.
const again = 100 * time.Millisecond

// Of returns a tenant that serves what register registers. It attaches again, and has all of it
// registered again, when the daemon has ended the attachment: then the domain has got new memory.
func Of(register Register, opts ...server.Option) daemon.Tenant {
	return func(ctx context.Context, socket string, settled func()) error {
		for {
			if err := serve(ctx, socket, register, settled, opts); err != nil || ctx.Err() != nil {
				return err
			}
			settled = func() {}
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
	if err := register(ctx, s); err != nil {
		return err
	}
	settled()
	if err := s.Serve(ctx); !errors.Is(err, server.ErrClosed) {
		return err
	}
	return nil
}
