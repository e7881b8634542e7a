package attach

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The errors of attaching and of the control connection, re-exported by the
// client and server packages.
var (
	// ErrNotRunning is returned when no daemon listens on the socket.
	ErrNotRunning = errors.New("rdmad is not running")
	// ErrPermission is returned when the socket or every domain refuses the
	// user.
	ErrPermission = errors.New("permission denied")
	// ErrVersion is returned when daemon and worker share no version.
	ErrVersion = errors.New("incompatible version")
	// ErrNoService is returned for a node, service or method that is not there.
	ErrNoService = errors.New("no such service")
	// ErrLimit is returned when the daemon's limits refuse a worker, a lane, a
	// method or a region.
	ErrLimit = errors.New("limit reached")
	// ErrInvalid is returned for a request that makes no sense.
	ErrInvalid = errors.New("invalid request")
	// ErrBusy is returned when the other side has much to read.
	ErrBusy = errors.New("the other side does not read")
	// ErrLater is the answer to a question for which others of the domain leave no room at the moment. Session.Ask asks again.
	ErrLater = errors.New("ask again later")
	// ErrClosed is returned when the connection to the daemon has ended.
	ErrClosed = errors.New("connection to rdmad closed")
)

// Code is an error on the wire.
type Code string

// codes is the one table between errors and their codes.
var codes = map[Code]error{
	"not-running": ErrNotRunning,
	"permission":  ErrPermission,
	"version":     ErrVersion,
	"no-service":  ErrNoService,
	"limit":       ErrLimit,
	"invalid":     ErrInvalid,
	"closed":      ErrClosed,
	"later":       ErrLater,
}

// Fail reports why a question has no answer.
type Fail struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
	// own is what this process knows besides the code, of a question that it has answered itself.
	own error
}

// FailFor makes a Fail of an error that wraps one of this package's, the outermost if there are several; any other
// is ErrInvalid.
func FailFor(err error) *Fail {
	return &Fail{Code: cmp.Or(codeOf(err), "invalid"), Text: err.Error()}
}

// codeOf returns the code of the first error of the table in err and what it wraps, "" for none.
func codeOf(err error) Code {
	for c, e := range codes {
		if err == e {
			return c
		}
	}
	switch w := err.(type) {
	case interface{ Unwrap() error }:
		return codeOf(w.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range w.Unwrap() {
			if c := codeOf(e); c != "" {
				return c
			}
		}
	}
	return ""
}

// Err returns the error that f reports: its text is the daemon's, and it wraps
// the error of the code.
func (f *Fail) Err() error {
	base, ok := codes[f.Code]
	if !ok {
		base = ErrInvalid
	}
	if f.own != nil {
		base = errors.Join(base, f.own)
	}
	return &remoteText{text: f.Text, base: base}
}

// remoteText is an error whose text came from the daemon.
type remoteText struct {
	text string
	base error
}

func (e *remoteText) Error() string { return e.text }
func (e *remoteText) Unwrap() error { return e.base }

// maxSocket is how long the path of a socket may be: the kernel's 108 bytes, less the zero at the end.
const maxSocket = 107

// noSocket reports that there is something at the path, and that it is no socket.
func noSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeSocket == 0
}

// DialError explains why the socket could not be reached.
func DialError(socket string, err error) error {
	switch {
	case errors.Is(err, unix.ECONNREFUSED) && noSocket(socket): // as the kernel has it
		return fmt.Errorf("%w: %s is no socket (name that of a daemon, which is its node.socket: RDMAD_SOCKET)", ErrNotRunning, socket)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: nothing listens on %s (start it with: rdmad run -c config.toml; or name its socket: RDMAD_SOCKET)", ErrNotRunning, socket)
	case errors.Is(err, unix.EPROTOTYPE):
		return fmt.Errorf("%w: %s is a socket of another kind than node.socket of a daemon", ErrNotRunning, socket)
	case len(socket) > maxSocket:
		return fmt.Errorf("%w: nothing can listen on %s: it has %d bytes, and the path of a socket at most %d", ErrNotRunning, socket, len(socket), maxSocket)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: cannot open socket %s: %w (see node.socket_mode in the daemon's config, and the socket's directory)", ErrPermission, socket, err)
	}
	return fmt.Errorf("attach to %s: %w", socket, err)
}
