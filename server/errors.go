package server

import (
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
)

// Errors of Attach, Handle, Serve, and of what a handler has.
var (
	// ErrNotRunning is returned by Attach when no daemon listens on the socket.
	ErrNotRunning = attach.ErrNotRunning
	// ErrPermission is returned by Attach when the socket or every domain
	// refuses the user.
	ErrPermission = attach.ErrPermission
	// ErrVersion is returned by Attach when daemon and library share no version.
	ErrVersion = attach.ErrVersion
	// ErrLimit is returned when the daemon's limits refuse the worker, a method or
	// a region.
	ErrLimit = attach.ErrLimit
	// ErrInvalid is returned for a call that makes no sense: a name that cannot be used, no
	// handler, Serve again, Handle after Withdraw, and bytes that are not within a region.
	ErrInvalid = attach.ErrInvalid
	// ErrTooLarge is returned for a message of a stream of more than 1 GiB, and for an answer
	// that Answer has no memory for. It is the client package's ErrTooLarge, too.
	ErrTooLarge = exchange.ErrTooLarge
	// ErrClosed is returned when the daemon is gone or Close was called: by Serve, and by
	// whatever else needs the daemon.
	ErrClosed = attach.ErrClosed
)
