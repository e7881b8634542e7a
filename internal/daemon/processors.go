package daemon

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/agent"
)

// processorOf is the processor of the i-th agent.
func processorOf(cpus []int, i int) int {
	if len(cpus) == 0 {
		return agent.NoProcessor
	}
	return cpus[i%len(cpus)]
}

// checkProcessors returns an error if the daemon may not use one of the processors.
func checkProcessors(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("agent.cpus: asking for the processors that the daemon may use: %w", err)
	}
	for _, n := range cpus {
		if !may.IsSet(n) {
			return fmt.Errorf("agent.cpus: the daemon may not use processor %d, only %s: correct the key, or the daemon's cpuset or affinity", n, processorsIn(&may))
		}
	}
	return nil
}

// processorsIn lists the processors of a set as taskset -c does.
func processorsIn(set *unix.CPUSet) string {
	var list []string
	for n, left := 0, set.Count(); left > 0; n++ {
		if !set.IsSet(n) {
			continue
		}
		first := n
		for left--; set.IsSet(n + 1); n++ {
			left--
		}
		if n == first {
			list = append(list, strconv.Itoa(n))
		} else {
			list = append(list, fmt.Sprintf("%d-%d", first, n))
		}
	}
	return strings.Join(list, ",")
}
