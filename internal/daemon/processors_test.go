package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// allowed returns the Cpus_allowed_list of the thread of a process with the name.
func allowed(pid int, name string) (list string, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil {
		return "", err
	}
	for _, thread := range threads {
		comm, err := os.ReadFile(filepath.Join(thread, "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue // a thread may have ended
		}
		status, err := os.ReadFile(filepath.Join(thread, "status"))
		if err != nil {
			return "", err
		}
		_, after, _ := strings.Cut(string(status), "Cpus_allowed_list:")
		list, _, _ := strings.Cut(after, "\n")
		return strings.TrimSpace(list), nil
	}
	return "", fmt.Errorf("process %d has no thread %s", pid, name)
}

// Agents keep to the processors of agent.cpus in turn; a core that follows does the same.
func TestAgentsKeepToTheirProcessors(t *testing.T) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	if may.Count() < 2 {
		t.Skip("only one processor, and this test needs two to tell agents apart: allow more (taskset, cpuset)")
	}
	var first, last int
	for n, left := 0, may.Count(); left > 0; n++ {
		if !may.IsSet(n) {
			continue
		}
		if left == may.Count() {
			first = n
		}
		last = n
		left--
	}
	a, _ := daemontest.PairOfEach(t, fmt.Sprintf("[agent]\ncount=3\ncpus=\"%d,%d\"\n", last, first), "")
	check := func() {
		t.Helper()
		pid, err := a.Core()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{last, first, last} {
			daemontest.Eventually(t, fmt.Sprintf("agent %d", i), func() error {
				got, err := allowed(pid, fmt.Sprintf("rdmad-agent%d", i))
				if err == nil && got != strconv.Itoa(want) {
					err = fmt.Errorf("it may use %s, want %d", got, want)
				}
				return err
			})
		}
	}
	check()
	serve(t, a)
	c := attachClient(t, a)
	if _, err := c.Call(t.Context(), "text/upper", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := a.KillCore(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), "text/upper", []byte("x")); err != nil {
		t.Fatal(err)
	}
	check()
}
