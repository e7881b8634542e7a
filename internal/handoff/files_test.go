package handoff

import (
	"os"
	"testing"
)

// A core finds what its supervisor has handed to it where that has put it, whatever there is.
func TestFiles(t *testing.T) {
	for some := range 1 << (Observers + 2) {
		f := Files{Start: new(os.File), Lifeline: new(os.File), Socket: new(os.File), Depot: new(os.File)}
		h := Start{Bootstrap: some&1 != 0}
		if h.Bootstrap {
			f.Bootstrap = new(os.File)
		}
		if some&2 != 0 {
			f.Pulse, h.BeatNS = new(os.File), 1
		}
		for i := range f.Observe {
			if h.Observe[i] = some&(4<<i) != 0; h.Observe[i] {
				f.Observe[i] = new(os.File)
			}
		}
		list, d := f.List(), h.Descriptors()
		at := func(fd int) *os.File {
			if fd == 0 {
				return nil
			}
			if fd -= 3; fd >= len(list) { // behind the standard ones, as exec.Cmd has it
				t.Fatalf("%+v: of %d files number %d", h, len(list), fd)
			}
			return list[fd]
		}
		got := Files{Start: at(startFD), Lifeline: at(LifelineFD), Socket: at(SocketFD), Depot: at(DepotFD), Bootstrap: at(d.Bootstrap), Pulse: at(d.Pulse)}
		for i, fd := range d.Observe {
			got.Observe[i] = at(fd)
		}
		if got != f {
			t.Errorf("%+v: %+v", h, d)
		}
	}
}
