package handoff

import (
	"testing"

	"golang.org/x/sys/unix"
)

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
