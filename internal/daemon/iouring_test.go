package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/shm"
)

// Each agent has an io_uring where the kernel lets it, unless agent.io_uring says not to ask.
func TestIOUrings(t *testing.T) {
	wakes := shm.NewWakes()
	allowed := wakes.Rings()
	if err := wakes.Close(); err != nil {
		t.Fatal(err)
	}
	a, b := daemontest.PairOfEach(t, "[agent]\ncount=3\nio_uring=false\n", "[agent]\ncount=3\n")
	for _, c := range []struct {
		node *daemontest.Node
		want int
	}{{a, 0}, {b, 3}} {
		pid, err := c.node.Core()
		if err != nil {
			t.Fatal(err)
		}
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(fds) == 0 {
			t.Fatalf("process %d has no descriptors: %v", pid, err)
		}
		n := 0
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); to == "anon_inode:[io_uring]" {
				n++
			}
		}
		if !allowed {
			c.want = 0
		}
		if n != c.want {
			t.Errorf("the core of 3 agents has %d, want %d", n, c.want)
		}
		told := 0
		for _, a := range statusOf(t, c.node).Agents {
			if a.Wakes == "io_uring" {
				told++
			}
		}
		if told != c.want {
			t.Errorf("the status of 3 agents says that %d have one, want %d", told, c.want)
		}
	}
	if !allowed {
		t.Skip("that agents have them was not seen: it needs Linux 6.7, kernel.io_uring_disabled=0 (sysctl), and no seccomp filter against it")
	}
}
