package crew

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Pin keeps the thread that calls it, and what it starts from then on, on one of the processors that
// it may use. The function that it returns undoes that for the thread.
func Pin() (unpin func() error, err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("processors of this thread: %w", err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("stay on one processor: %w", err)
	}
	return func() error { return unix.SchedSetaffinity(0, &before) }, nil
}
