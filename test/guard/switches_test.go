package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// switches counts how often the caller and the agents sleep, for calls of processes that
// nobody slows down: their voluntary context switches. All of them share one CPU, as with
// two it depends on the moment whether somebody has to sleep. Other threads of the daemons,
// and the service, whose monitor ticks while there is work, count time instead.
func switches(t *testing.T) map[string]float64 {
	const rounds = 200
	r := newRig(t)
	defer r.stop()
	roles := r.roles()
	for pid := range roles {
		pin(t, pid)
	}
	r.rounds("call", warmUp)
	wakes := daemonWakes(t, r.a, r.b)
	before := map[string]int{}
	for pid, role := range roles {
		before[role] = sleeps(t, pid, role)
	}
	r.rounds("call", rounds)
	each := map[string]float64{}
	for pid, role := range roles {
		each[role] = float64(sleeps(t, pid, role)-before[role]) / rounds
	}
	delete(each, theService)
	each["wake-ups"] = float64(daemonWakes(t, r.a, r.b)-wakes) / rounds
	return each
}

// daemonWakes returns how many workers nodes have woken so far.
func daemonWakes(t *testing.T, nodes ...*daemontest.Node) (sum uint64) {
	t.Helper()
	for _, n := range nodes {
		s, err := n.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sum += s.Counters["wakes"]
	}
	return sum
}

// tasks returns the threads of a process.
func tasks(t *testing.T, pid int) []string {
	t.Helper()
	all, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(all) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	return all
}

// pin lets a process run on the first CPU that it may use, and on no other.
func pin(t *testing.T, pid int) {
	t.Helper()
	var may, one unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &may); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !may.IsSet(cpu) {
		cpu++
	}
	one.Set(cpu)
	// Twice: a thread that was started meanwhile, by one that was free, is free too.
	for range 2 {
		for _, task := range tasks(t, pid) {
			tid, err := strconv.Atoi(filepath.Base(task))
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.SchedSetaffinity(tid, &one); err != nil && !errors.Is(err, unix.ESRCH) {
				t.Fatal(err)
			}
		}
	}
}

// agentThread begins the names of agents' threads.
const agentThread = "rdmad-agent"

// sleeps returns how often the threads of a process, of a daemon those of its agents, have
// given up their CPU to wait for something.
func sleeps(t *testing.T, pid int, role string) int {
	return switchesOf(t, pid, role, "voluntary_ctxt_switches:")
}

// turns returns how often the threads of an agent have had a CPU, whatever has ended it.
func turns(t *testing.T, core int) int {
	return switchesOf(t, core, theNear, "voluntary_ctxt_switches:") + switchesOf(t, core, theNear, "nonvoluntary_ctxt_switches:")
}

// switchesOf adds up a line of the status of a process's threads, of a daemon's those of its agents.
func switchesOf(t *testing.T, pid int, role, counter string) (sum int) {
	t.Helper()
	for _, task := range tasks(t, pid) {
		if role == theNear || role == theFar {
			name, err := os.ReadFile(filepath.Join(task, "comm"))
			if err != nil || !strings.HasPrefix(string(name), agentThread) {
				continue
			}
		}
		text, err := os.ReadFile(filepath.Join(task, "status"))
		if err != nil {
			continue // a thread that has ended
		}
		for line := range strings.Lines(string(text)) {
			if n, ok := strings.CutPrefix(line, counter); ok {
				k, err := strconv.Atoi(strings.TrimSpace(n))
				if err != nil {
					t.Fatal(err)
				}
				sum += k
			}
		}
	}
	return sum
}
