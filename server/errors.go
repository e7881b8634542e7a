package server

import "github.com/rdmad/rdmad/internal/attach"

// Errors of Attach, Handle and Serve.
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
	// handler, Serve again, Handle after Withdraw, a message of a stream that is too large, and
	// bytes that are not within a region.
	ErrInvalid = attach.ErrInvalid
	// ErrClosed is returned when the daemon is gone or Close was called: by Serve, and by
	// whatever else needs the daemon.
	ErrClosed = attach.ErrClosed
)
