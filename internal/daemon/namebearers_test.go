package daemon

import (
	"testing"
	"time"
)

// Restarts are none of a name's business, two daemons that live at a time are.
func TestNameBearers(t *testing.T) {
	var b nameBearers
	now := time.Now()
	for _, c := range []struct {
		incarnation, address, want string
		after                      time.Duration
	}{
		{"x", "1", "", 0},
		{"x", "2", "", 0}, // another connection
		{"y", "3", "", 0}, // a restart
		{"z", "4", "", 0},
		{"y", "5", "4", 0}, // which has not ended
		{"z", "6", "", 0},  // it was said
		{"y", "7", "6", twiceEvery},
		{"x", "8", "", twiceEvery}, // longer ago than is known: as good as a restart
	} {
		now = now.Add(c.after)
		if got := b.bear(c.incarnation, c.address, now); got != c.want {
			t.Errorf("%s from %s: %q, want %q", c.incarnation, c.address, got, c.want)
		}
	}
}
