package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/exchange"
)

// Errors of attaching; see also VersionError in package shm.
var (
	// ErrNotRunning is returned by Attach when no daemon listens on the socket.
	ErrNotRunning = attach.ErrNotRunning
	// ErrPermission is returned by Attach when the socket or every domain
	// refuses the user.
	ErrPermission = attach.ErrPermission
	// ErrVersion is returned by Attach when daemon and library share no version.
	ErrVersion = attach.ErrVersion
	// ErrLimit is returned by Attach when the daemon has no room for more
	// workers, by AllocRegion when the process has no room for the region, and by Method
	// and what looks a target up when it has none to map a lane there.
	ErrLimit = attach.ErrLimit
)

// Errors of calls.
var (
	// ErrNoService is returned for a node, service or method that is not
	// there, before or after the request was sent. The error of a request or of looking
	// its target up is an ErrNotExecuted too.
	ErrNoService = attach.ErrNoService
	// ErrInvalid is returned for a target that does not parse, and for calls that cannot be
	// made as they are: Commit after Commit, for example, or an Idempotent call by what has one outcome only.
	ErrInvalid = attach.ErrInvalid
	// ErrClosed is returned when the connection to the daemon has ended; what
	// was accepted before ends in ErrNotExecuted or ErrMaybeExecuted.
	ErrClosed = attach.ErrClosed
	// ErrTooLarge is returned, as a *TooLargeError, for a message of more than MaxMessage bytes, and for
	// one that does not fit its slots where it may not travel otherwise: with Direct, Within or Ordered, and by Reserve,
	// CallRegions, CallRegionsInto and GoRegions.
	ErrTooLarge = exchange.ErrTooLarge
	// ErrBackpressure is returned with NoWait when there is no room at once: the ring is full; its
	// free slots are kept for a large request that has waited long; or this process has used up its
	// quota of slots or bytes, or its share of a crowded ring. The text says which. The request was
	// not executed.
	ErrBackpressure = errors.New("ring full")
	// ErrNotExecuted is wrapped by the error of an accepted request that is
	// known not to have been executed.
	ErrNotExecuted = errors.New("not executed")
	// ErrMaybeExecuted is wrapped by the error of an accepted request that may
	// have been executed: its peer, its handler's process or the daemon was
	// lost after the request was handed over.
	ErrMaybeExecuted = errors.New("may have been executed")
	// ErrNotExported is wrapped by the outcome of a request with references to
	// regions whose node has forgotten a region, because it was started anew or was
	// out of reach for long. Not executed; a new request makes the region known again.
	ErrNotExported = errors.New("region not known to the node")
	// ErrDeadline is returned, as a *DeadlineError, when the context of a call
	// ended first.
	ErrDeadline = errors.New("deadline passed")
	// ErrRemote is returned, as a *RemoteError, for an error of the handler.
	ErrRemote = errors.New("remote error")
)

// RemoteError is the error that a handler returned.
type RemoteError struct {
	// Target is the called method as node/service/method.
	Target string
	// Text is the handler's error text, cut to the room in the answer.
	Text string
}

// Error returns the handler's text with the method it came from.
func (e *RemoteError) Error() string { return e.Target + ": " + e.Text }

// Is makes errors.Is(err, ErrRemote) true.
func (e *RemoteError) Is(target error) bool { return target == ErrRemote }

// TooLargeError says what was too large for what.
type TooLargeError struct {
	// Target is the called method.
	Target string
	// What is too large: "request", "answer" or "room for an answer".
	What string
	// Size is the message's size, with what goes with it (Carry, references to regions), or
	// that of the room, and Limit the largest that would have fitted, in bytes. Size is 0 if
	// only the handler knows.
	Size, Limit int
	// remedy is what the limit comes from, and what can be done.
	remedy string
}

// Error names the sizes, and what to do.
func (e *TooLargeError) Error() string {
	text := fmt.Sprintf("%s: %s of %d bytes, at most %d", e.Target, e.What, e.Size, e.Limit)
	if e.Size == 0 {
		text = fmt.Sprintf("%s: %s larger than %d bytes", e.Target, e.What, e.Limit)
	}
	if e.remedy != "" {
		text += " (" + e.remedy + ")"
	}
	return text
}

// Is makes errors.Is(err, ErrTooLarge) true. A request that is too large was
// not executed; an answer that is too large was.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// DeadlineError is returned when the context of a call ended before the answer.
type DeadlineError struct {
	// Target is the called method.
	Target string
	// Sent is false if the request was taken back, or was refused by the peer
	// because it came too late: it was not executed. If true it may have been.
	Sent bool
	// Cause is why: the context's cause (context.Cause), which is its error where nobody has given
	// another one, or an error of the peer.
	Cause error
	// ended is the context's error.
	ended error
}

// late is the error of a request whose context has ended.
func (m *Method) late(ctx context.Context, sent bool) *DeadlineError {
	return &DeadlineError{Target: m.name, Sent: sent, Cause: context.Cause(ctx), ended: ctx.Err()}
}

// of is what the end of a part, or of a try, is to the whole request.
func (e *DeadlineError) of(target string, sent bool) *DeadlineError {
	return &DeadlineError{Target: target, Sent: sent, Cause: e.Cause, ended: e.ended}
}

// Error says what is known about the request.
func (e *DeadlineError) Error() string {
	if e.Sent {
		return fmt.Sprintf("%s: %v; the request may have been executed", e.Target, e.Cause)
	}
	return fmt.Sprintf("%s: %v; the request was not executed", e.Target, e.Cause)
}

// Is makes errors.Is true for ErrDeadline, for ErrMaybeExecuted or ErrNotExecuted, as Sent
// says, and for context.DeadlineExceeded or context.Canceled, as the context has ended.
func (e *DeadlineError) Is(target error) bool {
	switch target {
	case ErrDeadline:
		return true
	case ErrMaybeExecuted:
		return e.Sent
	case ErrNotExecuted:
		return !e.Sent
	}
	return errors.Is(e.ended, target)
}

// Unwrap returns Cause for errors.Is and errors.As. A cause that is an error of this package is the
// outcome of another request, and hidden from them.
func (e *DeadlineError) Unwrap() error {
	if e.Cause == nil || errors.Is(e.ended, e.Cause) { // which compares only what can be compared
		return e.Cause
	}
	return elsewhere{e.Cause}
}

// roomError is the cause of the end of a request that has waited for room, with what it has waited for.
type roomError struct {
	wanted error
	cause  error // what its context ended with
}

func (e *roomError) Error() string { return e.wanted.Error() }
func (e *roomError) Unwrap() error { return e.cause }

// elsewhere is an error about something else than the request whose error it is the cause of.
type elsewhere struct{ error }

// Is hides what says how a request has ended.
func (e elsewhere) Is(target error) bool {
	switch target {
	case ErrNoService, ErrInvalid, ErrClosed, ErrLimit, ErrTooLarge, ErrBackpressure, ErrNotExecuted, ErrMaybeExecuted, ErrNotExported, ErrDeadline, ErrRemote:
		return false
	}
	return errors.Is(e.error, target)
}

// As does, too.
func (e elsewhere) As(target any) bool {
	switch target.(type) {
	case **RemoteError, **TooLargeError, **DeadlineError, **noWayError:
		return false
	}
	return errors.As(e.error, target)
}

var errPeerDeadline = fmt.Errorf("dropped by the peer: %w", context.DeadlineExceeded)

// noWayError is the error of a request for which there was no way to its target. It was
// not sent.
type noWayError struct {
	target string
	err    error
}

// noWay makes an error of one of the daemon's about the way to the target.
func (m *Method) noWay(err error) error {
	if errors.Is(err, ErrNoService) {
		return &noWayError{m.name, err}
	}
	return fmt.Errorf("client: %s: %w", m.name, err)
}

// Error is the daemon's text.
func (e *noWayError) Error() string { return "client: " + e.target + ": " + e.err.Error() }

// Is makes errors.Is(err, ErrNotExecuted) true.
func (e *noWayError) Is(target error) bool { return target == ErrNotExecuted }

// Unwrap returns the error that is ErrNoService.
func (e *noWayError) Unwrap() error { return e.err }
