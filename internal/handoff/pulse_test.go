package handoff

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A core that hangs is ended within a time that follows from node.hang_limit, or never.
func TestHangBound(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: 0, 2 * time.Second: 8 * time.Second, 20 * time.Second: 35 * time.Second} {
		if got := HangBound(limit); got != want {
			t.Errorf("%v: %v, want %v", limit, got, want)
		}
	}
}

// The core's view is of the supervisor's memory.
func TestPulse(t *testing.T) {
	p, err := NewPulse()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	f, err := p.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	core, err := OpenPulse(fd)
	if err != nil {
		t.Fatal(err)
	}
	core.Beat()
	core.Beat()
	core.Close()
	if n := p.Beats.Load(); n != 2 {
		t.Errorf("%d beats", n)
	}
	(*Pulse)(nil).Beat()
	(*Pulse)(nil).Close()
}
