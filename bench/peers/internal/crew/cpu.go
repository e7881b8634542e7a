package crew

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Tree returns the processes and all their descendants that live.
func Tree(pids []int) ([]int, error) {
	var all []int
	for queue := append([]int(nil), pids...); len(queue) > 0; queue = queue[1:] {
		all = append(all, queue[0])
		children, err := children(queue[0])
		if err != nil {
			return nil, err
		}
		queue = append(queue, children...)
	}
	return all, nil
}

// children returns the children of all threads of a process. One that is gone has none.
func children(pid int) ([]int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var found []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		for _, word := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(word)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list, err)
			}
			found = append(found, child)
		}
	}
	return found, nil
}

// CPU returns the processor time that processes have used so far, with all their threads, also
// those that have ended. The numbers in /proc are no use for short runs: those of a process have a
// resolution of 10 ms, and those of its threads end with them.
func CPU(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		var t unix.Timespec
		// How Linux numbers the clock of a process: clock_getcpuclockid(3).
		if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(t.Nano())
	}
	return sum, nil
}
