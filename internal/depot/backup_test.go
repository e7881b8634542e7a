package depot

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A service manager that does not read is waited for once, and not again until it has read.
func TestDeafManager(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(unix.Close(fds[0]), unix.Close(fds[1])) }()
	limit := func(d time.Duration) {
		t.Helper()
		v := unix.NsecToTimeval(int64(d))
		if err := unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &v); err != nil {
			t.Fatal(err)
		}
	}
	var r reports
	b := &Backup{sock: fds[0], report: r.add}
	limit(10 * time.Millisecond)
	sent := 0
	for ; len(r.take()) == 0; sent++ {
		b.Tell("WATCHDOG=1")
	}
	limit(time.Hour)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 100 {
			b.Tell("WATCHDOG=1")
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits for the manager again")
	}
	if errs := r.take(); len(errs) != 100 || !errors.Is(errs[0], ErrManager) {
		t.Errorf("%d errors: %v", len(errs), errs)
	}
	for range sent - 1 {
		if _, err := unix.Read(fds[1], make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	b.Tell("READY=1")
	if errs := r.take(); len(errs) > 0 || b.deaf.Load() {
		t.Errorf("when it has read: %v, deaf %v", errs, b.deaf.Load())
	}
}
