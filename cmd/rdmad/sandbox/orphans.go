package sandbox

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant whose parent
// ends, so that endOrphans finds what a command left behind.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

const (
	// orphanGrace is how long orphans get to end by themselves after a SIGTERM.
	orphanGrace = 2 * time.Second
	// orphanEnd is how long they then get to be gone after a SIGKILL.
	orphanEnd = 20 * time.Second
)

// endOrphans ends all children of this process other than those given. It
// gives up on processes that not even a SIGKILL ends.
func endOrphans(known ...int) {
	signalled := map[int]bool{}
	begin, killing := time.Now(), time.Time{}
	// Counted from the first SIGKILL: this process may not have run for a while before.
	for killing.IsZero() || time.Since(killing) < orphanEnd {
		children := slices.DeleteFunc(childrenOf(os.Getpid()), func(pid int) bool { return slices.Contains(known, pid) })
		if len(children) == 0 {
			return
		}
		// Reap those that have ended. Their own children may have become this process's
		// since it looked, so it looks again.
		children = slices.DeleteFunc(children, func(pid int) bool {
			got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			return err == nil && got == pid
		})
		if killing.IsZero() && time.Since(begin) > orphanGrace {
			killing = time.Now()
		}
		for _, pid := range children {
			switch {
			case !killing.IsZero():
				_ = syscall.Kill(pid, syscall.SIGKILL)
			case !signalled[pid]:
				signalled[pid] = true
				_ = syscall.Kill(pid, syscall.SIGTERM)
			}
		}
		time.Sleep(retryPause)
	}
}

// childrenOf returns the children of a process.
func childrenOf(parent int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var children []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// After the name in parentheses: the state and the parent.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}
