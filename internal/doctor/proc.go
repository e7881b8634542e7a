package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
)

// unlimited is the limit that is none.
const unlimited = math.MaxUint64

// notVisible is the remedy where the limits of the process that counts cannot be read.
const notVisible = "run this as the user that runs the daemon, in its container if it has one, where /proc is mounted"

// process is whose limits count: the daemon's core if one runs, or else this one. err says why that is not to be seen from here.
func (e *Env) process() (dir, who string, err error) {
	if e.Daemon == nil {
		return "proc/self", "this process", nil
	}
	pids := e.Daemon.PIDs
	who = fmt.Sprintf("the daemon's core (pid %d)", pids.Core)
	if !e.coreSeen() {
		return "", who, fmt.Errorf("no process %d here is the child of a process %d, its supervisor: it is in another container, or hidden", pids.Core, pids.Supervisor)
	}
	return fmt.Sprintf("proc/%d", pids.Core), who, nil
}

// coreSeen reports whether the processes that have the numbers of the daemon's core and supervisor here are those. The daemon
// knows them by the numbers of its own namespace, which may be those of others here: the core is the supervisor's child.
func (e *Env) coreSeen() bool {
	_, parent := e.stat(e.Daemon.PIDs.Core)
	return parent != "" && parent == strconv.Itoa(e.Daemon.PIDs.Supervisor)
}

// supervisorHalted reports whether the daemon's supervisor was stopped by a signal or a debugger.
func (e *Env) supervisorHalted() bool {
	state, _ := e.stat(e.Daemon.PIDs.Supervisor)
	return e.coreSeen() && (state == "T" || state == "t")
}

// stat reads the state and the parent of a process; empty if they are not known.
func (e *Env) stat(pid int) (state, parent string) {
	text, err := fs.ReadFile(e.Root, fmt.Sprintf("proc/%d/stat", pid))
	if err != nil {
		return "", ""
	}
	// "1234 (name) S 1 ...", and the name can hold anything.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) < 2 {
		return "", ""
	}
	return f[0], f[1]
}

// limit is a resource limit.
type limit struct{ soft, hard uint64 }

// limitOf reads a limit of the process that counts, who, by the name it has in
// /proc/PID/limits. The bytes or the count are 64 bits; unlimited stands for none.
func (e *Env) limitOf(name string) (l limit, who string, err error) {
	process, who, err := e.process()
	if err == nil {
		l, err = e.limitIn(process+"/limits", name)
	}
	return l, who, err
}

// limitIn reads a limit from a file as the kernel writes them.
func (e *Env) limitIn(file, name string) (limit, error) {
	text, err := fs.ReadFile(e.Root, file)
	if err != nil {
		return limit{}, err
	}
	for line := range strings.Lines(string(text)) {
		values, ok := strings.CutPrefix(line, name+" ")
		if !ok {
			continue
		}
		f := strings.Fields(values)
		if len(f) < 2 {
			break
		}
		soft, err1 := limitValue(f[0])
		hard, err2 := limitValue(f[1])
		return limit{soft, hard}, errors.Join(err1, err2)
	}
	return limit{}, fmt.Errorf("/%s does not tell %q", file, name)
}

// limitValue parses a limit as /proc writes it.
func limitValue(s string) (uint64, error) {
	if s == "unlimited" {
		return unlimited, nil
	}
	return strconv.ParseUint(s, 10, 64)
}

// limitText prints a limit with a function for its unit.
func limitText(n uint64, unit func(uint64) string) string {
	if n == unlimited {
		return "unlimited"
	}
	return unit(n)
}

// capIPCLock is the number of the capability whose owners may lock any amount of
// memory.
const capIPCLock = 14

// mayLock reports whether the process that counts has the capability for locking memory,
// where it counts: in the initial user namespace, not in that of a rootless container.
func (e *Env) mayLock() bool {
	process, _, err := e.process()
	if err != nil {
		return false
	}
	ids, err := fs.ReadFile(e.Root, process+"/uid_map")
	if err != nil || !slices.Equal(strings.Fields(string(ids)), []string{"0", "0", "4294967295"}) {
		return false
	}
	status, err := fs.ReadFile(e.Root, process+"/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && caps&(1<<capIPCLock) != 0
		}
	}
	return false
}

// meminfo reads /proc/meminfo: pages as counts, all else in KiB.
func (e *Env) meminfo() (map[string]uint64, error) {
	text, err := fs.ReadFile(e.Root, "proc/meminfo")
	if err != nil {
		return nil, err
	}
	m := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if f := strings.Fields(value); len(f) > 0 {
			if n, err := strconv.ParseUint(f[0], 10, 64); err == nil {
				m[key] = n
			}
		}
	}
	return m, nil
}
