package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Reasons why a device cannot be opened; use errors.Is.
var (
	// ErrNoDevice: there is no RDMA device, or none of the given name.
	ErrNoDevice = errors.New("no such RDMA device")
	// ErrNoPort: the device has no port of the given number.
	ErrNoPort = errors.New("no such port")
	// ErrPortDown: the port is not active.
	ErrPortDown = errors.New("port is not active")
	// ErrNoGID: the entry of the GID table is empty, or no entry will do.
	ErrNoGID = errors.New("no usable GID")
	// ErrNoPKey: the entry of the partition key table is empty.
	ErrNoPKey = errors.New("no such partition key")
)

// OpenError is returned by Open when the device that the configuration names
// cannot be used.
type OpenError struct {
	// Key is the key below [verbs] to look at.
	Key string
	// Detail says what was looked for and what was found.
	Detail string
	Err    error
}

// Error names the key.
func (e *OpenError) Error() string { return fmt.Sprintf("verbs: %s: %v: %s", e.Key, e.Err, e.Detail) }

// Unwrap returns one of the reasons above, or the failed call.
func (e *OpenError) Unwrap() error { return e.Err }

// CallError is a failed call of libibverbs or librdmacm.
type CallError struct {
	Call  string
	Errno syscall.Errno
}

// Error names the call.
func (e *CallError) Error() string { return e.Call + ": " + e.Errno.Error() }

// Unwrap returns the errno.
func (e *CallError) Unwrap() error { return e.Errno }

// LimitError says that a device or the system has no more of something.
type LimitError struct {
	// What there is not enough of, such as "memory registration".
	What string
	// Asked is how much was needed, Limit how much there may be; 0: unknown.
	Asked, Limit uint64
	// Hint says what to do about it.
	Hint string
	Err  error
}

// Error says how much of what was asked for.
func (e *LimitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "verbs: %s of %d", e.What, e.Asked)
	if e.Limit > 0 {
		fmt.Fprintf(&b, ", the limit is %d", e.Limit)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	return b.String()
}

// Unwrap returns the failed call, if there was one.
func (e *LimitError) Unwrap() error { return e.Err }

// Values of Completion.Vendor that are not the device's own vendor error, which
// has 32 bits on paper and no more than 16 on the devices of this day.
const (
	// VendorPeerClosed: the peer has said that it closed the connection.
	VendorPeerClosed uint32 = 0x7f_0000 + iota
	// VendorQPFatal: the device reported an error of the queue pair.
	VendorQPFatal
	// VendorCQError: the device reported an error of the completion queue.
	VendorCQError
	// VendorDeviceFatal: the device reported that it is broken or was removed.
	VendorDeviceFatal
	// VendorUnexpected: the device reported a completion that fits no work
	// request.
	VendorUnexpected
	// VendorPortDown: the port of the device went down.
	VendorPortDown
)

// CompletionError is a failed Completion with what is known about its connection,
// for logs.
type CompletionError struct {
	Completion fabric.Completion
	// Peer is the remote end; QPN, GID and Device are the local one.
	Peer   string
	QPN    uint32
	GID    netip.Addr
	Device string
	// Timeout, RetryCount and RNRRetry are those of the queue pair.
	Timeout, RetryCount, RNRRetry int
	// Cause is the likely one, Next a command that finds out more.
	Cause, Next string
}

// Error says all of it in one line.
func (e *CompletionError) Error() string {
	var b strings.Builder
	c := e.Completion
	fmt.Fprintf(&b, "verbs: %v (vendor error %#x) on queue pair %#x of %s, GID %s, peer %s", c.Status, c.Vendor, e.QPN, e.Device, e.GID, e.Peer)
	switch c.Status {
	case fabric.StatusRetryExceeded:
		fmt.Fprintf(&b, "; timeout %d (%v), retry_count %d", e.Timeout, ackTimeout(e.Timeout), e.RetryCount)
	case fabric.StatusRNRExceeded:
		fmt.Fprintf(&b, "; rnr_retry %d", e.RNRRetry)
	}
	fmt.Fprintf(&b, ": %s; try: %s", e.Cause, e.Next)
	return b.String()
}

// Unwrap returns the *fabric.StatusError.
func (e *CompletionError) Unwrap() error { return e.Completion.Status.Err() }

// Is makes it a fabric.ErrPeerClosed if it is that.
func (e *CompletionError) Is(target error) bool {
	return target == fabric.ErrPeerClosed && e.Completion.Vendor == VendorPeerClosed
}

// ackTimeout decodes the exponent of a queue pair's acknowledgement timeout; 0
// means for ever.
func ackTimeout(exponent int) time.Duration {
	if exponent == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << exponent
}

// likely returns the probable cause of a failed completion and the command to run
// next.
func likely(c fabric.Completion, device string) (cause, next string) {
	const doctor = "rdmad doctor --peer NODE"
	local := "ibv_devinfo -d " + device
	switch c.Vendor {
	case VendorPeerClosed:
		return "the peer closed the connection", "look into the peer's log"
	case VendorQPFatal, VendorDeviceFatal:
		return "the device reported a fatal error", "dmesg; " + local
	case VendorPortDown:
		return "the port went down", "ip link; rdma link; " + local
	case VendorCQError:
		return "the completion queue broke, by an overflow or a device error", "dmesg; " + local
	}
	switch c.Status {
	case fabric.StatusRetryExceeded:
		return "the peer does not answer: its process or machine is gone, a link is down, or the path drops packets (MTU, VLAN, flow control)", doctor
	case fabric.StatusRNRExceeded:
		return "the peer posts no receives: its agent is stuck or too slow", doctor
	case fabric.StatusRemoteAccess:
		return "the peer has no such memory: its lane was closed, or the address, length or key is wrong", "look into the peer's log"
	case fabric.StatusRemoteInvalid, fabric.StatusRemoteOperation:
		return "the peer's device refused the request: versions or configurations differ", doctor
	case fabric.StatusLocalLength, fabric.StatusLocalProtection:
		return "this side's memory does not fit the request, which is a bug", "report it with the log"
	case fabric.StatusFlushed:
		return "the connection ended before it was carried out; an earlier completion says why", "look for it in the log"
	default:
		return "the device failed", "dmesg; " + local
	}
}
