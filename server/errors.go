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
	// ErrInvalid is returned by Handle for a name that cannot be used, and by Serve
	// when it was called before.
	ErrInvalid = attach.ErrInvalid
	// ErrClosed is returned by Serve when the daemon is gone or Close was
	// called.
	ErrClosed = attach.ErrClosed
)
