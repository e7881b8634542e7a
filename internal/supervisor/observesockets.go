package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/handoff"
)

// openObserve opens the sockets for HTTP that are configured.
func (s *supervisor) openObserve() error {
	if path := s.cfg.ObserveSocket(); path != "" {
		err := checkUnused(path)
		if err == nil {
			err = removeOldSocket(path)
		}
		if err != nil {
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
	}
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

// checkUnused returns ErrInUse if a process that lives listens at path. The core of a supervisor that was killed may go on
// listening for a moment: it was the supervisor that has begun it, and the kernel says so.
func checkUnused(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil // nobody does, or it is no socket
	case err != nil:
		return fmt.Errorf("%w: somebody may listen at %s: %w: choose another path", ErrInUse, path, err)
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var owner *unix.Ucred
	var credErr error
	if err := errors.Join(raw.Control(func(fd uintptr) { owner, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }), credErr); err != nil {
		return err
	}
	if owner.Pid > 0 && errors.Is(unix.Kill(int(owner.Pid), 0), unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("%w: process %d listens at %s: choose another path", ErrInUse, owner.Pid, path)
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
