package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cpuThread matches the name that QEMU gives to the thread of a virtual CPU.
var cpuThread = regexp.MustCompile(`^CPU ([0-9]+)/TCG$`)

// virtualCPU returns the number of the virtual CPU whose thread has this name.
func virtualCPU(name string) (int, bool) {
	m := cpuThread.FindStringSubmatch(strings.TrimSpace(name))
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}

// pinCPUs pins each virtual CPU of a guest to a core of its own. Otherwise the
// host's scheduler moves two busy ones onto one core every now and then, and a
// message takes milliseconds. It says what it did.
func pinCPUs(pid, want int) (string, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return "", fmt.Errorf("asking for the cores of the host: %w", err)
	}
	var cores []int
	for n := 0; len(cores) < allowed.Count(); n++ {
		if allowed.IsSet(n) {
			cores = append(cores, n)
		}
	}
	if len(cores) < want {
		return fmt.Sprintf("not pinned, there are %d cores for %d CPUs: times in the guest mean nothing", len(cores), want), nil
	}
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return "", err
	}
	pinned := 0
	for _, e := range entries {
		name, err := os.ReadFile(filepath.Join(tasks, e.Name(), "comm"))
		if err != nil {
			continue // the thread has ended
		}
		cpu, ok := virtualCPU(string(name))
		thread, err := strconv.Atoi(e.Name())
		if !ok || err != nil || cpu >= len(cores) {
			continue
		}
		var set unix.CPUSet
		set.Set(cores[cpu])
		if err := unix.SchedSetaffinity(thread, &set); err != nil {
			return "", fmt.Errorf("pinning CPU %d: %w", cpu, err)
		}
		pinned++
	}
	if pinned != want {
		return "", fmt.Errorf("found %d threads of virtual CPUs, expected %d", pinned, want)
	}
	return "each CPU on a core of its own", nil
}
