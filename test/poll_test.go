package test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// limit bounds everything that a test waits for. It is far beyond what anything
// takes, because machines that run tests are slow at the worst of times.
var limit = 3 * time.Minute

// many makes a number of messages smaller for slow machines: n is good for the default of
// -rdmad.messages.
func many(n int) int { return min(n, max(n**messages/defaultMessages, 200)) }

// pollPause is the time between two looks at a condition.
const pollPause = 2 * time.Millisecond

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(pollPause) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, limit)
		}
	}
}

// bounded returns a context for one step of a test.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	fields := statFields(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return len(fields) > 0 && fields[0] != "Z"
}

// ticks returns the processor time of a process in hundredths of a second.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	fields := statFields(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	const user, system = 11, 12
	if len(fields) <= system {
		t.Fatalf("process %d is gone", pid)
	}
	sum := 0
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// exists reports whether there is a file.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
