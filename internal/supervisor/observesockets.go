package supervisor

import (
	"fmt"
	"net"
	"os"

	"github.com/rdmad/rdmad/internal/handoff"
)

// openObserve opens the Unix socket for HTTP if one is configured. Nobody may listen there.
func (s *supervisor) openObserve() error {
	path := s.cfg.ObserveSocket()
	if path == "" {
		return nil
	}
	if err := removeOldSocket(path); err != nil {
		return fmt.Errorf("observe.socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("observe.socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := os.Chmod(path, s.cfg.Observe.SocketMode); err != nil {
		return fmt.Errorf("observe.socket_mode: %w", err)
	}
	if s.observe[handoff.ObserveUnix], err = l.File(); err != nil {
		return fmt.Errorf("observe.socket: %w", err)
	}
	if s.observeFile, err = os.Lstat(path); err != nil {
		return fmt.Errorf("observe.socket: %w", err)
	}
	return nil
}

// listenObserve opens the TCP socket for HTTP if one is configured.
func (s *supervisor) listenObserve() error {
	if s.cfg.Observe.Listen == "" {
		return nil
	}
	t, err := net.Listen("tcp", s.cfg.Observe.Listen)
	if err != nil {
		return fmt.Errorf("observe.listen: %w", err)
	}
	defer t.Close()
	if s.observe[handoff.ObserveTCP], err = t.(*net.TCPListener).File(); err != nil {
		return fmt.Errorf("observe.listen: %w", err)
	}
	return nil
}

// observed says which of them there are.
func (s *supervisor) observed() (there [handoff.Observers]bool) {
	for i, f := range s.observe {
		there[i] = f != nil
	}
	return there
}

func (s *supervisor) closeObserve() {
	removeSame(s.cfg.ObserveSocket(), s.observeFile)
	for _, f := range s.observe {
		if f != nil {
			_ = f.Close()
		}
	}
}
