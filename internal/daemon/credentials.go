package daemon

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/shm"
)

// credentials asks the kernel who is at the other end.
func (w *worker) credentials(sock *net.UnixConn) error {
	raw, err := sock.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr != nil {
			return
		}
		if w.groups, credErr = shm.PeerGroups(int(fd)); credErr != nil {
			return
		}
		pidfd, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if err != nil {
			pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
		}
		switch {
		case err == nil:
			unix.CloseOnExec(pidfd)
			w.pidfd = pidfd
		default:
			credErr = withoutPidfd(err)
		}
	})
	if err := errors.Join(err, credErr); err != nil {
		return fmt.Errorf("credentials of a worker: %w", err)
	}
	w.pid, w.uid, w.gid = int(cred.Pid), cred.Uid, cred.Gid
	return nil
}

// withoutPidfd is the refusal of a process for which the kernel gives no pidfd; nil where it gives none for any, or not for
// those of another pid namespace. Without one it counts as dead as soon as its socket is closed, and whoever has the socket
// may choose the moment.
func withoutPidfd(err error) error {
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return withoutMemory(err)
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("%w: the process that has connected has ended, and another one has the socket; each process is to connect itself: %w", attach.ErrClosed, err)
	}
	return nil
}

// someGroups returns the worker's groups, the primary one first, as many as an error needs.
func (w *worker) someGroups() []uint32 {
	groups := []uint32{w.gid}
	for _, gid := range w.groups {
		if len(groups) < 8 && !slices.Contains(groups, gid) {
			groups = append(groups, gid)
		}
	}
	return groups
}

// Network and String make the worker's process what a turnstile counts by: net.Addr. A process of a pid namespace that is not
// seen from here has no number: then it is its user.
func (w *worker) Network() string { return "process" }
func (w *worker) String() string {
	if w.pid == 0 {
		return fmt.Sprintf("a process of user %d", w.uid)
	}
	return fmt.Sprintf("process %d", w.pid)
}

// isOutcast returns the error that a process gets that was disconnected for what it did.
func (c *conductor) isOutcast(w *worker) error {
	if c.outcasts[w.pid] > 0 {
		return fmt.Errorf("%w: process %d was disconnected for what it has written; it can attach when it was started anew", attach.ErrPermission, w.pid)
	}
	return nil
}
