package supervisor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
)

// ErrInUse is returned by Run when another daemon has the socket.
var ErrInUse = errors.New("the socket is in use")

// takeLock locks the file of node.socket for the life of this process.
func (s *supervisor) takeLock() error {
	for s.lock == nil {
		if err := s.tryLock(config.LockFile(s.cfg.Node.Socket)); err != nil {
			return err
		}
	}
	return nil
}

// writePID says in a file beside node.socket, which everybody may read, which process has the lock.
func (s *supervisor) writePID() error {
	// Not what a link leads to: the file is overwritten. It is never empty, for those who read it meanwhile.
	f, err := openOwn(config.PIDFile(s.cfg.Node.Socket), 0o644)
	if err != nil {
		return fmt.Errorf("node.socket: pid file: %w (see: rdmad doctor)", err)
	}
	cerr := f.Chmod(0o644) // whatever the umask is
	n, err := fmt.Fprintf(f, "%d\n", os.Getpid())
	made, serr := f.Stat()
	s.pidFile = made
	if err = errors.Join(cerr, err, serr, f.Truncate(int64(n)), f.Close()); err != nil {
		return fmt.Errorf("node.socket: pid file: %w (see: rdmad doctor)", err)
	}
	return nil
}

// tryLock sets lock, unless the daemon that had the file has removed it between
// our opening and our locking it.
func (s *supervisor) tryLock(path string) error {
	// Nobody else is to open it: who can read a file can lock it, and no daemon would start then.
	f, err := openOwn(path, 0o600)
	if err == nil {
		err = f.Chmod(0o600) // also that of an older rdmad
	}
	if err != nil {
		return fmt.Errorf("node.socket: lock file: %w (see: rdmad doctor)", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return fmt.Errorf("%w: %s", ErrInUse, s.holder(path))
	}
	locked, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("lock file: %w", err), f.Close())
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(there, locked) {
		return f.Close()
	}
	s.lock = f
	return nil
}

// holder says who has the lock at path.
func (s *supervisor) holder(path string) string {
	text, err := readOwn(config.PIDFile(s.cfg.Node.Socket))
	if errors.Is(err, os.ErrNotExist) { // an older rdmad has it in the lock
		text, err = readOwn(path)
	}
	if err == nil {
		pid, err := strconv.Atoi(strings.TrimSpace(text))
		if err == nil && Locked(path, pid) {
			return fmt.Sprintf("another rdmad (pid %d) serves %s", pid, s.cfg.Node.Socket)
		}
	}
	return fmt.Sprintf("a process that is no rdmad of this node, or one that starts just now, has locked %s (see: fuser -v %s)", path, path)
}

// Locked reports whether a process has locked the file at path, by the kernel's list of locks, see proc_locks(5): the process id that a
// killed daemon has left may be that of any other program by now, or, of a daemon in a container, be another one out here.
func Locked(path string, pid int) bool {
	var file unix.Stat_t
	if unix.Stat(path, &file) != nil {
		return false
	}
	list, err := os.ReadFile("/proc/locks")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(list)) {
		// 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE 0 EOF; a file may be of another device for the list than for stat
		f := strings.Fields(line)
		if len(f) > 5 && f[1] == "FLOCK" && f[4] == strconv.Itoa(pid) && strings.HasSuffix(f[5], ":"+strconv.FormatUint(file.Ino, 10)) {
			return true
		}
	}
	return false
}

// giveLock removes what takeLock and writePID have made, the lock last and while it is locked.
func (s *supervisor) giveLock() {
	if s.lock == nil {
		return
	}
	removeSame(config.PIDFile(s.cfg.Node.Socket), s.pidFile)
	if locked, err := s.lock.Stat(); err == nil {
		removeSame(s.lock.Name(), locked)
	}
	_ = s.lock.Close()
}
