//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// A device that cannot resize completion queues makes them as large as they may have to be, within its limit.
func TestFixedDepth(t *testing.T) {
	for _, c := range []struct {
		refused     error
		limit, want int
	}{
		{nil, 1 << 20, 0}, {unix.ENOMEM, 1 << 20, 0}, {errors.New("another"), 1 << 20, 0},
		{&CallError{Call: "ibv_resize_cq", Errno: unix.EOPNOTSUPP}, 1 << 20, 1 << 18}, {unix.ENOSYS, 1000, 1000},
	} {
		if got := fixedDepth(c.refused, c.limit); got != c.want {
			t.Errorf("%v, limit %d: %d, want %d", c.refused, c.limit, got, c.want)
		}
	}
}
