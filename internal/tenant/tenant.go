// Package tenant makes services that live in a core.
package tenant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"golang.org/x/sys/unix"

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

const (
	// again is how long a tenant waits before it attaches again, and mostAgain how long at most, after each attempt in vain twice as long.
	again     = 100 * time.Millisecond
	mostAgain = 5 * time.Second
)

// passing are the errors of an attempt to attach that another one, later, need not have: the domain has got new memory once more, or the
// core lacks something, and its descriptors and memory are those of this process, or has no time. Why a process may not attach at all, and
// versions that do not fit, are none.
var passing = []error{
	server.ErrClosed, server.ErrLimit, server.ErrNotRunning, os.ErrDeadlineExceeded, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EAGAIN,
}

func passes(err error) bool {
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// Of returns a tenant that serves what register registers. It attaches again, and has all of it
// registered again, when the daemon has ended the attachment: then the domain has got new memory. That may
// happen once more before register has returned, and an attempt to attach may find that the core lacks something, after which there is another one. Only
// the first time must go well, or the node does not start; what register returns must be good each time.
func Of(register Register, opts ...server.Option) daemon.Tenant {
	return func(ctx context.Context, socket string, settled func()) error {
		before := false // it has settled
		first := func() {
			if !before {
				settled()
			}
			before = true
		}
		for wait := again; ; {
			s, err := server.Attach(ctx, socket, opts...)
			switch {
			case err == nil:
				wait = again
				if err = serve(ctx, s, register, first); before && errors.Is(err, server.ErrClosed) {
					err = nil
				}
			case before && ctx.Err() == nil && passes(err):
				wait, err = min(2*wait, mostAgain), nil
			}
			if err != nil || ctx.Err() != nil {
				return err
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// serve serves until ctx or the attachment ends. Its error says why it could not.
func serve(ctx context.Context, s *server.Server, register Register, settled func()) (err error) {
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
