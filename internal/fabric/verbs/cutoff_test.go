//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
)

// cutOff has a device's library reach the kernel no more, until what it returns is called.
func (r *rig) cutOff(q *cq) (restore func()) {
	r.Helper()
	fd := int(q.lib.cq.context.cmd_fd)
	kept, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	r.must(err)
	nowhere, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	r.must(err)
	r.must(errors.Join(unix.Dup3(nowhere, fd, unix.O_CLOEXEC), unix.Close(nowhere)))
	return func() {
		r.Helper()
		r.must(errors.Join(unix.Dup3(kept, fd, unix.O_CLOEXEC), unix.Close(kept)))
	}
}

// A queue that cannot be armed says so once, ends what uses it, and can be slept on then.
func TestArmFails(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 64, true)
	a, _ := r.pair(16, 16)
	q := r.cq[0]
	for r.poll() > 0 {
	}
	restore := r.cutOff(q)
	q.armed = false
	asleep, err := q.Arm()
	restore()
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

// A queue pair that the device refused to destroy when its connection failed is there still: Close says so, until it is destroyed.
func TestCloseOfWhatCannotBeDestroyed(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 64, false)
	a, _ := r.pair(16, 16)
	restore := r.cutOff(r.cq[0])
	a.ep.fail(fabric.StatusFatal, VendorDeviceFatal, endBroken)
	first, second := a.ep.Close(), a.ep.Close()
	restore()
	if first == nil || second == nil {
		t.Errorf("it is closed: %v, %v", first, second)
	}
	r.must(a.ep.Close())
}
