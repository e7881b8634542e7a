package link

import (
	"errors"
	"fmt"
)

// ErrLost is wrapped by the errors of a link whose other side is gone without a word.
var ErrLost = errors.New("the other side is gone")

// ErrSilent is wrapped by the errors of a wait for a message that has not come within Patience.
var ErrSilent = errors.New("the other side has said nothing")

// MismatchError says that two sides cannot measure together. Nothing was done.
type MismatchError struct {
	// What differs: "protocol", "provider" or "tool".
	What string
	// Own and Peer are the values; PeerVersion is the other side's rdmad.
	Own, Peer, PeerVersion string
}

// Error says what differs, and what to do.
func (e *MismatchError) Error() string {
	s := fmt.Sprintf("the other side, rdmad %s, has the %s %s, this one has %s", e.PeerVersion, e.What, e.Peer, e.Own)
	switch e.What {
	case whatProvider:
		return s + ": give both the same --fabric and --provider"
	case whatTool:
		return s + ": start the same command on both"
	}
	return s + ": use one release of rdmad on both"
}

// RefusedError is what the other side says before it ends the connection.
type RefusedError struct {
	// Reason is for people.
	Reason string `json:"reason"`
	// Input says that it does not like what it was asked for, and has done nothing.
	Input bool `json:"input"`
}

// Error returns the reason.
func (e *RefusedError) Error() string {
	if e.Input {
		return "the other side refuses: " + e.Reason
	}
	return "the other side has given up: " + e.Reason
}

// ProtocolError says that the other side does not keep to the protocol, or is no rdmad.
type ProtocolError struct{ Detail string }

// Error says what came.
func (e *ProtocolError) Error() string {
	return "the other side does not speak as rdmad perf does: " + e.Detail
}

func protocolError(format string, args ...any) error {
	return &ProtocolError{Detail: fmt.Sprintf(format, args...)}
}
