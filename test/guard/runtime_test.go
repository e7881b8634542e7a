package guard

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// daemons are the roles that have agents.
var daemons = map[string]bool{theNear: true, theFar: true}

// agent reports whether a call is made by a thread that moves messages. Nothing else runs there.
func (x *tracer) agent(c *call) bool {
	is, ok := x.agents[c.tid]
	if !ok {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", c.pid, c.tid))
		is = err == nil && strings.HasPrefix(string(name), agentThread)
		x.agents[c.tid] = is
	}
	return is
}

// everywhere are the calls that the Go runtime makes in any thread for reasons of its own:
// the end of a signal handler, its collector, the start of a thread, and a clock where the
// kernel gives it no other way to read one.
var everywhere = []int{
	unix.SYS_RT_SIGRETURN, unix.SYS_TGKILL, unix.SYS_MADVISE, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_CLONE, unix.SYS_CLONE3,
	unix.SYS_SIGALTSTACK, unix.SYS_RT_SIGPROCMASK, unix.SYS_GETTID, unix.SYS_EXIT, unix.SYS_CLOCK_GETTIME, unix.SYS_RESTART_SYSCALL,
}

// elsewhere are those that it makes in its other threads, and in all of a process without
// agents: its monitor's sleeps and signals, and its look for descriptors.
var elsewhere = []int{unix.SYS_NANOSLEEP, unix.SYS_GETPID, unix.SYS_EPOLL_PWAIT}

// byRuntime reports whether a call that is none of the known kinds counts time, and not
// messages. An agent has none of these, and a thread that runs goroutines some.
func (x *tracer) byRuntime(c *call) bool {
	if slices.Contains(everywhere, c.number) {
		return true
	}
	if x.agent(c) {
		return false
	}
	if daemons[x.roles[c.pid]] {
		return true // what a daemon does beside its agents is not done for messages
	}
	if c.number == unix.SYS_READ || c.number == unix.SYS_WRITE {
		return true // the pipes between the test and its processes: what is not a socket or a bell
	}
	return slices.Contains(elsewhere, c.number)
}
