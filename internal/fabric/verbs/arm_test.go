//go:build verbs && cgo && linux

package verbs

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// A queue that cannot be armed says so once, ends what uses it, and can be slept on then.
func TestArmFails(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 64, true)
	a, _ := r.pair(16, 16)
	q := r.cq[0]
	for r.poll() > 0 {
	}
	// The library's way to the kernel leads nowhere for a moment.
	fd := int(q.lib.cq.context.cmd_fd)
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	r.must(err)
	defer unix.Close(kept)
	nowhere, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	r.must(err)
	defer unix.Close(nowhere)
	r.must(unix.Dup3(nowhere, fd, unix.O_CLOEXEC))
	q.armed = false
	asleep, err := q.Arm()
	r.must(unix.Dup3(kept, fd, unix.O_CLOEXEC))
	if asleep || err == nil {
		t.Fatalf("it is armed: %v, %v", asleep, err)
	}
	r.until("the end is told", func() bool { return r.count(0, fabric.OpDisconnect) == 1 })
	for _, c := range r.got[0] {
		if c.Tag != a.tag || c.Status == fabric.StatusSuccess {
			t.Errorf("%+v", c)
		}
	}
	for range 3 {
		if asleep, err := q.Arm(); !asleep || err != nil {
			t.Fatalf("it cannot be slept on: %v, %v", asleep, err)
		}
	}
}
