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

	"github.com/rdmad/rdmad/internal/bench/cputime"
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

// CPU returns the processor time that processes have used so far, with all their threads.
func CPU(pids []int) (time.Duration, error) {
	var sum time.Duration
	for _, pid := range pids {
		t, err := cputime.Of(pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}
