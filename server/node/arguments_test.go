package node_test

import (
	"os"
	"slices"
	"testing"

	"github.com/rdmad/rdmad/server/node"
)

// The supervisor's arguments are not the program's.
func TestTakeArguments(t *testing.T) {
	mine := os.Args
	defer func() { os.Args = mine }()
	for _, x := range []struct {
		in, out     []string
		core, probe bool
	}{
		{[]string{"p"}, []string{"p"}, false, false},
		{[]string{"p", "-c", "core"}, []string{"p", "-c", "core"}, false, false},
		{[]string{"p", "core"}, []string{"p", "core"}, false, false},
		{[]string{"p", "core", "-c", "x"}, []string{"p", "core", "-c", "x"}, false, false},
		{[]string{"p", "core", "--"}, []string{"p"}, true, false},
		{[]string{"p", "core", "--", "-c", "x"}, []string{"p", "-c", "x"}, true, false},
		{[]string{"p", "core", "--", "--probe"}, []string{"p", "--probe"}, true, false},
		{[]string{"p", "core", "--probe"}, []string{"p", "core", "--probe"}, false, true},
		{[]string{"p", "core", "--probe", "x"}, []string{"p", "core", "--probe", "x"}, false, false},
	} {
		os.Args = slices.Clone(x.in)
		if core, probe := node.TakeArguments(); core != x.core || probe != x.probe || !slices.Equal(os.Args, x.out) {
			t.Errorf("%q: %v, %v, %q", x.in, core, probe, os.Args)
		}
	}
}
