// Package handoff is what passes between a supervisor and the core that it starts: the
// descriptors and the terms that a core begins with (Start), what it is told later (Note, which
// arrives through the depot, and Briefing, the core's view of it), what it says of itself there
// (Node), the beats by which it shows that it lives (Pulse), and the status that it exits with.
// Supervisor and core may be of different releases: everything here is read by others.
package handoff

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/rdmad/rdmad/internal/config"
)

// Start is what the supervisor tells a core that it starts.
type Start struct {
	// Supervisor is its process id.
	Supervisor int `json:"supervisor"`
	// Source is the name of the configuration and Data what Config.Own has made of it,
	// so that both processes work from the same, whatever becomes of the file and the
	// environment.
	Source string `json:"source"`
	Data   []byte `json:"data"`
	// Digest is the supervisor's of the configuration; "" from an older release.
	Digest string `json:"digest,omitempty"`
	// Overrides are the keys of it that are from flags and the environment; nil if that is not
	// known.
	Overrides []config.Override `json:"overrides"`
	// Bootstrap: there is a socket for peers.
	Bootstrap bool `json:"bootstrap"`
	// Observe says which sockets for HTTP there are.
	Observe [Observers]bool `json:"observe"`
	// Backup: what is kept survives the supervisor.
	Backup bool `json:"backup"`
	// BeatNS is how often the supervisor must know that all is well, in nanoseconds; 0: it need
	// not. Else there is a pulse.
	BeatNS int64 `json:"beat_ns,omitempty"`
}

// StatusNoStart is the exit status of a core that could not start: what it was
// configured for is not to be had here. The supervisor gives up if the first core
// ends with it, and keeps trying with later ones, whose device may come back.
const StatusNoStart = 4

// StatusHandOver is the exit status of a core that has handed over to the next one.
const StatusHandOver = 5

// StatusUndrained is the exit status of a core that has been told to drain, and has not come to the end of it in its time.
const StatusUndrained = 6

// maxStart bounds a Start in bytes: what a configuration can be, as base64.
const maxStart = 16 * config.MaxFileSize

// Read returns what the supervisor has told this process, which is a core. It is called once.
func Read() (*Start, error) {
	f := os.NewFile(startFD, "handoff")
	if f == nil {
		return nil, errors.New("no handoff descriptor")
	}
	defer f.Close()
	return decode(f)
}

func decode(r io.Reader) (*Start, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxStart))
	if err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	var h Start
	if err := json.Unmarshal(data, &h); err != nil {
		return nil, fmt.Errorf("handoff: %w", err)
	}
	return &h, nil
}

// Listener takes over the listening socket behind one of the descriptors above.
func Listener(fd uintptr) (net.Listener, error) {
	f := os.NewFile(fd, "listener")
	defer f.Close()
	return net.FileListener(f)
}

// The sockets for HTTP: the supervisor opens them and keeps them for all cores.
const (
	ObserveUnix = iota
	ObserveTCP
	Observers // how many there can be
)

// ObserveListeners returns the core's listeners for HTTP, nil for those that there are not.
func (d *Descriptors) ObserveListeners() (list [Observers]net.Listener, err error) {
	for i, fd := range d.Observe {
		if fd == 0 {
			continue
		}
		if list[i], err = Listener(uintptr(fd)); err != nil {
			return list, fmt.Errorf("socket for HTTP: %w", err)
		}
	}
	if l, ok := list[ObserveUnix].(*net.UnixListener); ok {
		l.SetUnlinkOnClose(false) // the supervisor's
	}
	return list, nil
}

// What a supervisor starts a program with: CoreCommand as the first argument, and behind it those that
// supervisor.Setup has, for the program to be a core (daemon.Core), or the flag --ProbeFlag alone, for it to
// print what it can go on with (version.Probe).
const (
	CoreCommand = "core"
	ProbeFlag   = "probe"
)
