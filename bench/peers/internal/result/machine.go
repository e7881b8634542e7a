package result

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ThisMachine describes the machine, of which it takes the load average, so it is called before
// anything is measured.
func ThisMachine(revision string) (Machine, error) {
	m := Machine{CPU: "unknown", CPUs: runtime.NumCPU(), Go: runtime.Version(), Date: time.Now().UTC().Format(time.DateOnly), Revision: revision}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return m, fmt.Errorf("the kernel's version: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(u.Release[:])
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(info)) {
		if key, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(model)
			break
		}
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	_, err = fmt.Sscan(string(load), &m.Load)
	return m, err
}
