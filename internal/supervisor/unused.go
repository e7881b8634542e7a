package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// checkUnused returns ErrInUse if a process that lives listens at path. The core of a supervisor that was killed may go on
// listening for a moment: it was the supervisor that has begun it, and the kernel says so.
func checkUnused(network, path string) error {
	c, err := net.DialTimeout(network, path, time.Second)
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil // nobody does, or it is no socket
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return fmt.Errorf("node.socket: who listens at %s cannot be asked: %w: raise LimitNOFILE (see: rdmad doctor)", path, err)
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
	if owner.Pid > 0 && dead(int(owner.Pid)) {
		return nil
	}
	return fmt.Errorf("%w: process %d listens at %s: stop it (see: ps -fp %d), or choose another path", ErrInUse, owner.Pid, path, owner.Pid)
}

// dead reports whether a process has ended, also if nobody has asked how.
func dead(pid int) bool {
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}
