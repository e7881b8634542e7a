package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
)

// withoutDescriptors runs f while this process can open nothing.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	next, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(next)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next), Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	}()
	f()
}

// The end of a process is noticed, and waited for again, where no descriptor is left.
func TestDeathIsNoticedWithoutDescriptors(t *testing.T) {
	r, held, err := os.Pipe() // this begins the poller, which has descriptors of its own
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer held.Close()
	cmd := exec.Command("cat")
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &worker{pid: cmd.Process.Pid}
	if w.pidfd, err = unix.PidfdOpen(w.pid, 0); err != nil {
		t.Fatal(err)
	}
	defer w.closePidfd()
	withoutDescriptors(t, func() {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if w.awaitDeath(ended, nil) {
			t.Error("a process that lives is dead")
		}
		_ = held.Close()
		if !w.awaitDeath(t.Context(), nil) {
			t.Error("the process is dead, and this is not noticed")
		}
	})
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// A process whose end could not be noticed is refused: the end of its connection would count for that.
func TestNoWorkerWithoutPidfd(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	f := os.NewFile(uintptr(fds[0]), "socket")
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := &worker{pidfd: -1}
	withoutDescriptors(t, func() { err = w.credentials(c.(*net.UnixConn)) })
	if !errors.Is(err, unix.EMFILE) || !errors.Is(err, attach.ErrLimit) || w.pidfd >= 0 {
		t.Errorf("%v, pidfd %d", err, w.pidfd)
	}
	if err := w.credentials(c.(*net.UnixConn)); err != nil || w.pidfd < 0 {
		t.Errorf("with descriptors: %v, pidfd %d", err, w.pidfd)
	}
	w.closePidfd()
}

// Processes of another pid namespace have no number here: users are told apart then.
func TestProcessesWithoutNumber(t *testing.T) {
	for want, w := range map[string]*worker{"process 7": {pid: 7, uid: 3}, "a process of user 3": {uid: 3}, "a process of user 4": {uid: 4}} {
		if w.String() != want {
			t.Errorf("%q, want %q", w.String(), want)
		}
	}
}

// A process whose attachment the daemon has ended, such as one that was slow, may close it later. It is no worker from then on, also as
// long as it lives: one that attaches again each time would use up limits.workers.
func TestClosedAfterTheEnd(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	c, end := served(t, cfg, successors(t, cfg))
	defer end()
	conn, w := attached(t, cfg, c)
	d := w.domain
	w.dismiss("it was slow")
	<-conn.Done()
	eventually(t, "the agent knows that its attachment has ended", func() (err error) {
		d.agent.Commands.Call(func() {
			if !w.view.Gone {
				err = errors.New("it does not")
			}
		})
		return err
	})
	known := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return d.workers[w.id] != nil
	}
	if !known() {
		t.Error("a process that may write to its slots is no worker any more")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "it is no worker any more", func() error {
		if known() {
			return errors.New("it is")
		}
		return nil
	})
}

// Who connects by a process that has ended is not let in where the kernel gives no pidfd of it: nobody would see its end. A kernel
// that has none, and one that says nothing of processes of another namespace, keep nobody out.
func TestWithoutPidfd(t *testing.T) {
	for err, want := range map[error]error{unix.ESRCH: attach.ErrClosed, unix.ENFILE: attach.ErrLimit, unix.ENOMEM: attach.ErrLimit, unix.ENOSYS: nil, unix.EINVAL: nil} {
		if got := withoutPidfd(err); !errors.Is(got, want) {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
