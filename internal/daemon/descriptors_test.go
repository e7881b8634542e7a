package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

// useUp sets the limit of a process's descriptors to what it has open.
func useUp(pid int) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		return err
	}
	limit.Cur = 0
	for {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, limit.Cur)); err != nil {
			return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil)
		}
		limit.Cur++
	}
}

// A process that wants to attach to a daemon without descriptors is told so, instead of waiting; those
// that are attached notice nothing; and when there are descriptors again, others can attach.
func TestAttachWithoutDescriptors(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	serve(t, a)
	attached := attachClient(t, a)
	if _, err := attached.Call(t.Context(), "text/upper", []byte("x")); err != nil { // its lanes need descriptors
		t.Fatal(err)
	}
	pid, err := a.Core()
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "a process is refused", func() error {
		if err := useUp(pid); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c, err := client.Attach(ctx, a.Socket)
		if err == nil {
			_ = c.Close()
			return errors.New("it was attached")
		}
		// Not for want of a segment, which is what it gets when something was closed meanwhile.
		if !strings.Contains(err.Error(), "LimitNOFILE") || !strings.Contains(err.Error(), "accept") || !errors.Is(err, client.ErrLimit) {
			return err
		}
		return nil
	})
	if _, err := attached.Call(t.Context(), "text/upper", []byte("x")); err != nil {
		t.Errorf("a process that was attached before: %v", err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := attachClient(t, a).Call(t.Context(), "text/upper", []byte("x")); err != nil {
		t.Errorf("a process that has attached afterwards: %v", err)
	}
}
