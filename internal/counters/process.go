package counters

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process is whether the core that wrote a file is still there.
type Process int

// The states of the core's process.
const (
	// ProcessUnknown: it is not to be seen from here, for example from another container.
	ProcessUnknown Process = iota
	// ProcessAlive: it runs, or could.
	ProcessAlive
	// ProcessHalted: it was stopped by SIGSTOP, or by a debugger.
	ProcessHalted
	// ProcessDead: it has ended.
	ProcessDead
)

// String returns the state as it is shown.
func (p Process) String() string {
	return [...]string{"unknown", "alive", "halted", "dead"}[p]
}

// process identifies the core: a process id may be given again, but not with the same
// birth.
type process struct{ pid, born, namespace uint64 }

// Process looks whether the core is still there.
func (s *Snapshot) Process() Process {
	p := s.process
	if p.pid == 0 || p.namespace == 0 || p.namespace != namespace() {
		return ProcessUnknown
	}
	state, born, ok := stat(strconv.FormatUint(p.pid, 10))
	switch {
	case !ok || born != p.born || state == 'Z' || state == 'X':
		return ProcessDead
	case state == 'T' || state == 't':
		return ProcessHalted
	}
	return ProcessAlive
}

// birth is when a process began, in ticks of the kernel; 0 if that is not known.
func birth(pid string) uint64 {
	_, born, _ := stat(pid)
	return born
}

// stat reads the state and the birth of a process.
func stat(pid string) (state byte, born uint64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	// "1234 (name) S ...", and the name can hold anything. The birth is field 22.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, false
	}
	born, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0][0], born, err == nil
}

// namespace is the number of this process's namespace of process ids; 0 if it is not known.
func namespace() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return 0
	}
	return st.Ino
}
