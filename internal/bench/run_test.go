package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// A run is over when as many messages have arrived as it has sent. More are not its own, and those that it has lost would not be
// missed among them.
func TestArrive(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		counts []uint64
		err    error
		want   string
	}{
		{"all", []uint64{7, 9, 10}, nil, ""},
		{"more", []uint64{7, 9, 13}, nil, "3 more one-way messages have arrived than were sent: another run"},
		{"an error", nil, broken, "broken"},
	} {
		asked := 0
		r := &run{arrived: 10, counted: func(context.Context) (uint64, error) {
			if asked == len(c.counts) {
				return 0, c.err
			}
			asked++
			return c.counts[asked-1], nil
		}}
		err := r.arrive(t.Context())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if asked != len(c.counts) {
			t.Errorf("%s: it has asked %d times", c.name, asked)
		}
	}
}
