package supervisor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/shm"
)

// open takes the lock and opens the listening sockets, or takes those that the service
// manager has passed. Nothing of another daemon is replaced before all that can be refused has been had: one that has lost
// its lock to somebody who cleans up goes on.
func (s *supervisor) open(passed []*os.File) error {
	path := s.cfg.Node.Socket
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("directory of node.socket: %w (see: rdmad doctor)", err)
	}
	if err := s.takeLock(); err != nil {
		return err
	}
	if err := s.adoptSockets(passed); err != nil {
		return err
	}
	if s.socket == nil {
		if err := checkUnused("unixpacket", path); err != nil {
			return fmt.Errorf("node.socket: %w", err)
		}
	}
	if http := s.cfg.ObserveSocket(); http != "" {
		if err := checkUnused("unix", http); err != nil {
			return fmt.Errorf("observe.socket: %w", err)
		}
	}
	if s.cfg.Node.Listen != "" && s.bootstrap == nil {
		if err := s.listenPeers(); err != nil {
			return err
		}
	}
	if err := s.listenObserve(); err != nil {
		return err
	}
	if s.socket == nil {
		if err := s.listenWorkers(path); err != nil {
			return err
		}
	}
	// Workers have none to give. Those that have connected before, to a socket of the service manager
	// for the most part, may send some all the same.
	if err := shm.RefuseFDs(int(s.socket.Fd())); err != nil {
		return fmt.Errorf("node.socket: %w", err)
	}
	if err := s.openObserve(); err != nil {
		return err
	}
	return s.writePID()
}

// adoptSockets takes the sockets that were passed: one for workers and, if the node has
// peers, one for them.
func (s *supervisor) adoptSockets(passed []*os.File) error {
	for _, f := range passed {
		address, err := unix.Getsockname(int(f.Fd()))
		if err != nil {
			return fmt.Errorf("a socket of the service manager: %w", err)
		}
		kind, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil {
			return fmt.Errorf("a socket of the service manager: %w", err)
		}
		local, isLocal := address.(*unix.SockaddrUnix)
		switch {
		case isLocal && kind == unix.SOCK_SEQPACKET && local.Name == s.cfg.Node.Socket && s.socket == nil:
			if there, err := os.Lstat(local.Name); err != nil || there.Mode().Type() != os.ModeSocket {
				return fmt.Errorf("the socket that the service manager listens at is not at %s any more: systemctl restart rdmad.socket", local.Name)
			}
			s.socket, s.activated = f, true
		case isLocal && kind == unix.SOCK_SEQPACKET:
			return fmt.Errorf("the socket unit listens at %s, node.socket is %s: make them the same", local.Name, s.cfg.Node.Socket)
		case !isLocal && kind == unix.SOCK_STREAM && s.cfg.Node.Listen != "" && s.bootstrap == nil:
			if has, wants := portOf(address), s.cfg.Node.Listen; !listensAt(has, wants) {
				return fmt.Errorf("the socket unit listens at port %d (ListenStream=), node.listen is %s: make them the same", has, wants)
			}
			s.bootstrap = f
		case !isLocal && kind == unix.SOCK_STREAM:
			_ = f.Close() // a node without peers listens for none
		default:
			return errors.New("the socket unit has a socket that is none for workers (ListenSequentialPacket=) and none for peers (ListenStream=)")
		}
	}
	return nil
}

// portOf returns the port of a socket's own address, 0 if it has none.
func portOf(address unix.Sockaddr) int {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	return 0
}

// listensAt says whether a port is that of node.listen, by which peers are told where the node is. Port 0 there is any.
func listensAt(port int, listen string) bool {
	_, text, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	want, err := strconv.Atoi(text)
	return err == nil && (want == 0 || want == port)
}

// removeOldSocket removes the socket that a dead daemon has left at path: the caller knows that it is dead. All else that
// may lie at a path from a configuration belongs to somebody, and stays.
func removeOldSocket(path string) error {
	there, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && there.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is no socket, and so not removed: move it away, or choose another path", path)
	}
	return errors.Join(err, os.Remove(path))
}

// listenWorkers opens the socket for workers.
func (s *supervisor) listenWorkers(path string) error {
	if err := removeOldSocket(path); err != nil {
		return fmt.Errorf("node.socket: %w", err)
	}
	s.removeCounters()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("node.socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := os.Chmod(path, s.cfg.Node.SocketMode); err != nil {
		return fmt.Errorf("node.socket_mode: %w", err)
	}
	if s.socket, err = l.File(); err != nil {
		return fmt.Errorf("node.socket: %w", err)
	}
	if s.socketFile, err = os.Lstat(path); err != nil {
		return fmt.Errorf("node.socket: %w", err)
	}
	return nil
}

// removeSame removes what is at path if it is still what this process has made there. When somebody has cleaned up the directory
// under a daemon, it may be another one's.
func removeSame(path string, made os.FileInfo) {
	if there, err := os.Lstat(path); err == nil && made != nil && os.SameFile(there, made) {
		_ = os.Remove(path)
	}
}

// listenPeers opens the socket for peers.
func (s *supervisor) listenPeers() error {
	t, err := net.Listen("tcp", s.cfg.Node.Listen)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("node.listen: %w (another process has it; that may be the core of an rdmad whose supervisor was killed, which ends with its calls, after node.drain_timeout at most; see: ss -tlnp)", err)
	case err != nil:
		return fmt.Errorf("node.listen: %w", err)
	}
	defer t.Close()
	if s.bootstrap, err = t.(*net.TCPListener).File(); err != nil {
		return fmt.Errorf("node.listen: %w", err)
	}
	return nil
}

// removeCounters removes the counters of a core that will not write any more.
func (s *supervisor) removeCounters() {
	if path := s.cfg.CountersPath(); path != "" {
		if err := counters.Remove(path, os.Getpid()); err != nil {
			event.CountersLeft.On(&s.log).Err(err).Msg("counters not removed")
		}
	}
}

// close gives everything back, the lock last.
func (s *supervisor) close() {
	if s.socket != nil {
		if !s.activated { // or nobody could start the service by it
			removeSame(s.cfg.Node.Socket, s.socketFile)
		}
		_ = s.socket.Close()
		s.removeCounters()
	}
	if s.bootstrap != nil {
		_ = s.bootstrap.Close()
	}
	s.closeObserve()
	if s.depot != nil {
		s.depot.Clear()
	}
	if err := s.backup.Close(); err != nil {
		event.StoreClose.On(&s.log).Err(err).Msg("closing the service manager's store")
	}
	s.pulse.Close()
	if s.exe != nil {
		s.exe.close()
	}
	s.giveLock()
}
