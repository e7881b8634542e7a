//go:build faultpoints

package fault

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// A core that is told to stop before it has looked at anything stops when it has, in an
// orderly way: the program takes the signal from its first moment on.
func TestStopOfAStartingCore(t *testing.T) {
	m := newArmory(t)
	a, _ := daemontest.Pair(t, "")
	taken := m.armNext(t, "core.started:1:stop")
	if err := a.KillCore(); err != nil {
		t.Fatal(err)
	}
	taken()
	pid := 0
	daemontest.Eventually(t, "the next core is halted at its start", func() error {
		text, err := os.ReadFile(m.log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 4 && f[0] == "stop" && f[1] == "core.started" {
				if pid, err = strconv.Atoi(f[3]); err != nil {
					return err
				}
				if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && strings.Contains(string(stat), ") T ") {
					return nil
				}
			}
		}
		return errors.New("no core has stopped there")
	})
	// The supervisor tells a core that goes on where another one has ended only when that is ready. Others may do so at any time.
	halted := make(chan error, 1)
	go func() { halted <- a.Halt() }()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-halted; err != nil {
		t.Errorf("the node did not stop in an orderly way: %v", err)
	}
	// Nor does one that the signal has killed keep the node from that.
	text, err := os.ReadFile(m.log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), fmt.Sprintf("pass core.handed 1 %d\n", pid)) {
		t.Errorf("the core has ended where it was halted: %s", text)
	}
}
