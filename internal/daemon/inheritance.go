package daemon

import (
	"errors"
	"fmt"
	"net"

	"github.com/rdmad/rdmad/internal/handoff"
)

// inheritance is the sockets that a core has of its supervisor, and the memory by which it
// tells that it lives. Who serves the sockets closes them.
type inheritance struct {
	workers *net.UnixListener
	// bootstrap and observe have nil for what the config does not want, beats is nil if
	// nobody looks.
	bootstrap net.Listener
	observe   [handoff.Observers]net.Listener
	beats     *handoff.Pulse
}

// takeInheritance makes something of the descriptors that come with h.
func takeInheritance(h *handoff.Start) (*inheritance, error) {
	socket, err := handoff.Listener(handoff.SocketFD)
	if err != nil {
		return nil, fmt.Errorf("worker socket: %w", err)
	}
	workers, ok := socket.(*net.UnixListener)
	if !ok {
		return nil, errors.New("the worker socket is not a Unix socket")
	}
	workers.SetUnlinkOnClose(false) // the supervisor's
	i, fds := &inheritance{workers: workers}, h.Descriptors()
	if fds.Bootstrap != 0 {
		if i.bootstrap, err = handoff.Listener(uintptr(fds.Bootstrap)); err != nil {
			return nil, fmt.Errorf("bootstrap socket: %w", err)
		}
	}
	if i.observe, err = fds.ObserveListeners(); err != nil {
		return nil, err
	}
	if fds.Pulse != 0 {
		if i.beats, err = handoff.OpenPulse(fds.Pulse); err != nil {
			return nil, fmt.Errorf("the supervisor's pulse: %w", err)
		}
	}
	return i, nil
}
