package fabric

import (
	"errors"
	"fmt"
)

var (
	// ErrNotSupported is returned for an operation the device cannot do.
	ErrNotSupported = errors.New("fabric: not supported")
	// ErrQueueFull is returned by PostSend and PostRecv without room.
	ErrQueueFull = errors.New("fabric: queue full")
	// ErrClosed is returned by calls on a closed endpoint, queue or device, and
	// for an endpoint whose connection is gone.
	ErrClosed = errors.New("fabric: closed")
	// ErrInvalid is returned for a work request that can never succeed: memory
	// out of its region, an unknown op, inline beyond the limit.
	ErrInvalid = errors.New("fabric: invalid work request")
	// ErrPeerClosed is wrapped by errors of Connect and of Explainer for a connection
	// of which the provider knows that the peer has ended it: nothing has failed at this
	// side. Not every provider tells this from a failure.
	ErrPeerClosed = errors.New("fabric: the peer has closed its end")
)

// ConnectError is returned by Connect.
type ConnectError struct {
	// Peer is the remote address, printable.
	Peer string
	Err  error
}

// Error names the peer.
func (e *ConnectError) Error() string { return fmt.Sprintf("fabric: connect to %s: %v", e.Peer, e.Err) }

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// Status is the outcome of a work request, named after ibv_wc_status.
type Status uint8

const (
	// StatusSuccess is the good outcome.
	StatusSuccess Status = iota
	// StatusLocalLength: a receive was too small for the arriving send.
	StatusLocalLength
	// StatusLocalProtection: local memory is not registered.
	StatusLocalProtection
	// StatusRemoteInvalid: the peer could not make sense of the request.
	StatusRemoteInvalid
	// StatusRemoteAccess: the remote address, length or key is not allowed.
	StatusRemoteAccess
	// StatusRemoteOperation: the peer failed to carry it out.
	StatusRemoteOperation
	// StatusRetryExceeded: the peer did not answer.
	StatusRetryExceeded
	// StatusRNRExceeded: the peer had no receive posted for too long.
	StatusRNRExceeded
	// StatusFlushed: the connection ended first.
	StatusFlushed
	// StatusFatal: the device or the connection broke.
	StatusFatal
)

// statusText is the one table of statuses; errors_test.go checks it is whole.
var statusText = [...]string{
	StatusSuccess:         "success",
	StatusLocalLength:     "local length error",
	StatusLocalProtection: "local protection error",
	StatusRemoteInvalid:   "remote invalid request",
	StatusRemoteAccess:    "remote access error",
	StatusRemoteOperation: "remote operation error",
	StatusRetryExceeded:   "transport retry exceeded",
	StatusRNRExceeded:     "receiver not ready retry exceeded",
	StatusFlushed:         "flushed",
	StatusFatal:           "fatal error",
}

// String returns the status in the words of ibv_wc_status_str.
func (s Status) String() string {
	if int(s) < len(statusText) {
		return statusText[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Err returns nil for StatusSuccess and a *StatusError for everything else.
func (s Status) Err() error {
	if s == StatusSuccess {
		return nil
	}
	return &StatusError{Status: s}
}

// StatusError is a Status as an error; use errors.As.
type StatusError struct{ Status Status }

// Error returns the status text.
func (e *StatusError) Error() string { return "fabric: " + e.Status.String() }
