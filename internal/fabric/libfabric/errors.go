package libfabric

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Reasons why nothing of libfabric can be opened; use errors.Is.
var (
	// ErrNoProvider: libfabric has no provider of the given name here.
	ErrNoProvider = errors.New("no such provider")
	// ErrNoDomain: the provider has no domain of the given name.
	ErrNoDomain = errors.New("no such domain")
	// ErrCapability: the provider cannot do what rdmad needs.
	ErrCapability = errors.New("the provider lacks something that rdmad needs")
	// ErrSource: the provider cannot use the given address.
	ErrSource = errors.New("no such address")
)

// OpenError is returned by Open when what the configuration names cannot be used.
type OpenError struct {
	// Key is the key below [libfabric] to look at.
	Key string
	// Detail says what was looked for and what was found.
	Detail string
	Err    error
}

// Error names the key.
func (e *OpenError) Error() string {
	return fmt.Sprintf("libfabric: %s: %v: %s", e.Key, e.Err, e.Detail)
}

// Unwrap returns one of the reasons above, or the failed call.
func (e *OpenError) Unwrap() error { return e.Err }

// CallError is a failed call of libfabric.
type CallError struct {
	Call string
	// Code is libfabric's error number, Text what it says of it.
	Code int
	Text string
}

// Error names the call.
func (e *CallError) Error() string { return e.Call + ": " + e.Text }

// PeerError is returned by Connect for a peer that this node cannot be connected with.
type PeerError struct {
	// What differs, and how.
	What, Here, There string
	// Hint says what to do about it.
	Hint string
}

// Error says what differs.
func (e *PeerError) Error() string {
	return fmt.Sprintf("libfabric: the %s differs: %s here, %s there: %s", e.What, e.Here, e.There, e.Hint)
}

// Values of Completion.Vendor that are not the provider's own error.
const (
	// VendorPeerClosed: the peer has said that it closed the connection.
	VendorPeerClosed uint32 = 0x7f_0000 + iota
	// VendorPeerFailed: the peer has said that it ended the connection because of an error.
	VendorPeerFailed
	// VendorUnexpected: there was a completion that fits no work request.
	VendorUnexpected
	// VendorTooManyArrivals: the peer sent more immediates without a receive than fit.
	VendorTooManyArrivals
	// VendorBadNotice: the peer sent a message in place of an immediate that is too long or too short.
	VendorBadNotice
	// VendorUnasked: the peer sent a message that nobody asked for.
	VendorUnasked
)

// CompletionError is a failed Completion with what is known about its connection,
// for logs.
type CompletionError struct {
	Completion fabric.Completion
	// Device describes the local end, Peer the remote one.
	Device, Peer string
	// Cause is the likely one, Next what finds out more.
	Cause, Next string
}

// Error says all of it in one line.
func (e *CompletionError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "libfabric: %v (provider's error %#x) on %s, peer %s: %s; try: %s",
		e.Completion.Status, e.Completion.Vendor, e.Device, e.Peer, e.Cause, e.Next)
	return b.String()
}

// Unwrap returns the *fabric.StatusError.
func (e *CompletionError) Unwrap() error { return e.Completion.Status.Err() }

// likely returns the probable cause of a failed completion and what to do next.
func likely(c fabric.Completion) (cause, next string) {
	const doctor, log = "rdmad doctor --peer NODE", "look into the peer's log"
	switch c.Vendor {
	case VendorPeerClosed:
		return "the peer closed the connection", log
	case VendorPeerFailed:
		return "the peer ended the connection because of an error", log
	case VendorTooManyArrivals:
		return "the peer sends without end and this node takes nothing: its agent is stuck", doctor
	case VendorUnasked:
		return "the peer sends what nobody asked for: it is another program, or a stranger is where it is", log
	case VendorBadNotice:
		return "what says which write has landed has the wrong size: the peer is another program, or damaged", log
	}
	switch c.Status {
	case fabric.StatusRetryExceeded:
		return "the peer does not answer: its process or machine is gone, or the network does not reach it", doctor
	case fabric.StatusRemoteAccess:
		return "the peer has no such memory: its lane was closed, or the address, length or key is wrong", log
	case fabric.StatusRemoteInvalid, fabric.StatusRemoteOperation:
		return "the peer's provider refused the request: versions or configurations differ", doctor
	case fabric.StatusLocalLength, fabric.StatusLocalProtection:
		return "this side's memory does not fit the request, which is a bug", "report it with the log"
	case fabric.StatusFlushed:
		return "the connection ended before it was carried out", "look into the logs of both nodes"
	default:
		return "the provider failed", "FI_LOG_LEVEL=warn for the daemon, and its standard error"
	}
}
