package shm_test

import (
	"testing"

	"github.com/rdmad/rdmad/shm"
)

// Within knows parts of memory, to the byte, and takes nothing else for one.
func TestWithin(t *testing.T) {
	all := make([]byte, 100)
	mem := all[10:90]
	for _, c := range []struct{ from, to, off int }{{10, 11, 0}, {10, 90, 0}, {89, 90, 79}, {50, 60, 40}} {
		if off, ok := shm.Within(mem, all[c.from:c.to]); !ok || off != c.off {
			t.Errorf("%v: at %d, %v", c, off, ok)
		}
	}
	for _, part := range [][]byte{all[9:20], all[80:91], all[90:95], all[:5], all, all[20:20], nil, make([]byte, 10)} {
		if off, ok := shm.Within(mem, part); ok {
			t.Errorf("%d bytes are at %d", len(part), off)
		}
	}
	if _, ok := shm.Within(nil, mem); ok {
		t.Error("something is in nothing")
	}
}
