// Package cputime reads the processor time of processes. What /proc says of it has a resolution of 10 ms for
// a process, and for its threads ends with them.
package cputime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Of returns the processor time, user and system, that a process has used so far with all its threads, also those
// that have ended. 0 is the caller's own. There is an error if there is no such process.
func Of(pid int) (time.Duration, error) {
	var t unix.Timespec
	// How Linux numbers the clock of a process: clock_getcpuclockid(3).
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
