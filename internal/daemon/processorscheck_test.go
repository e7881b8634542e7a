package daemon

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A processor that the daemon may not use is named, with those that it may.
func TestCheckProcessors(t *testing.T) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	if may.IsSet(1023) {
		t.Skip("this machine has 1024 processors: run it on a smaller one")
	}
	for _, fine := range [][]int{nil, {firstOf(&may)}} {
		if err := checkProcessors(fine); err != nil {
			t.Errorf("%v: %v", fine, err)
		}
	}
	err := checkProcessors([]int{firstOf(&may), 1023})
	if err == nil || !strings.Contains(err.Error(), "agent.cpus") || !strings.Contains(err.Error(), "1023, only "+processorsIn(&may)) {
		t.Errorf("processor 1023: %v", err)
	}
}

func firstOf(set *unix.CPUSet) (n int) {
	for !set.IsSet(n) {
		n++
	}
	return n
}

func TestProcessorsIn(t *testing.T) {
	for want, list := range map[string][]int{"": nil, "0": {0}, "0-1": {0, 1}, "1,3": {1, 3}, "0,2-4,1022-1023": {0, 2, 3, 4, 1022, 1023}} {
		var set unix.CPUSet
		for _, n := range list {
			set.Set(n)
		}
		if got := processorsIn(&set); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}
