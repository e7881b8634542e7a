package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// kind is a sort of system call.
type kind string

const (
	send    kind = "send"    // to a socket
	receive kind = "receive" // from one
	poll    kind = "poll"    // an agent's look for events, or its sleep
	yield   kind = "yield"
	sleep   kind = "sleep"   // on a futex word that processes share
	wake    kind = "wake"    // of one, or a page
	bell    kind = "bell"    // a ring of an eventfd
	more    kind = "more"    // any other that the Go runtime does not make by itself
	sched   kind = "runtime" // futexes of the Go runtime: its threads wake each other
	other   kind = "other"   // the Go runtime's monitor and collector, which count time and not messages
)

// costs are the kinds that the program asks for. Those of the Go runtime are left out.
var costs = []kind{send, receive, poll, yield, sleep, wake, bell, more}

// wakes are the kinds that wake another thread up, or may.
var wakes = []kind{send, wake, bell}

// Besides calls, bytes and work requests of the tcp fabric are counted.
const (
	// frames are work requests that were handed to a socket.
	frames kind = "frames"
	// sentInPlace and sentCopies are bytes that went to a socket from memory that is
	// shared with workers, and from the daemon's own; gotInPlace and gotCopies are those
	// that came from a socket there.
	sentInPlace kind = "bytes sent from slots and regions"
	sentCopies  kind = "bytes sent from other memory"
	gotInPlace  kind = "bytes received into slots and regions"
	gotCopies   kind = "bytes received into other memory"
)

// calls are the system calls of processes, by their role.
type calls map[string]map[kind]int

func (c calls) sum(role string, kinds ...kind) (n int) {
	for _, k := range kinds {
		n += c[role][k]
	}
	return n
}

// tracer counts the system calls of other processes by ptrace, which needs no privileges
// for one's own descendants, no support by the programs, and misses nothing. Everything
// takes longer meanwhile, so what is counted must not depend on time.
type tracer struct {
	roles map[int]string // by process id
	// process is that of each thread, and agents are the threads that move messages, as far as
	// somebody has asked.
	process map[int]int
	agents  map[int]bool
	// kinds are those of descriptors.
	kinds map[descriptor]string
	// vectors are those of the reads and writes that threads are in, and maps is the
	// memory of processes.
	vectors map[int][]extent
	maps    map[int][]mapping

	mu    sync.Mutex
	count calls
}

type descriptor struct{ pid, fd int }

// call is a system call at its beginning or at its end.
type call struct {
	pid, tid int
	begins   bool
	number   int
	args     [3]uint64
	// result is of its end.
	result int64
}

// runTracer is the process that counts: it attaches to the processes of its arguments,
// PID=ROLE, and says on each line that it reads what it has counted since the last one.
// It is no part of the test's process because the Go runtime there, which waits for the
// end of the test's children, would see their stops too.
func runTracer(args []string) error {
	x := &tracer{roles: map[int]string{}, process: map[int]int{}, kinds: map[descriptor]string{}, count: calls{},
		agents: map[int]bool{}, vectors: map[int][]extent{}, maps: map[int][]mapping{}}
	for _, arg := range args {
		pid, role, _ := strings.Cut(arg, "=")
		n, err := strconv.Atoi(pid)
		if err != nil {
			return err
		}
		x.roles[n], x.count[role] = role, map[kind]int{}
	}
	fmt.Println("started")
	// Only the thread that attaches may do the rest.
	runtime.LockOSThread()
	err := x.attach()
	if errors.Is(err, unix.EPERM) {
		fmt.Println(refused)
	}
	if err != nil {
		return err
	}
	fmt.Println("attached")
	go x.listen()
	return x.run()
}

// refused is what a tracer says if the kernel does not allow it.
const refused = "refused"

// listen answers questions until there are no more.
func (x *tracer) listen() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		if err := out.Encode(x.take()); err != nil {
			break
		}
	}
	os.Exit(0) // the kernel lets everybody go
}

// counter is a tracer as the test sees it.
type counter struct {
	t   *testing.T
	in  *os.File
	out *daemontest.Process
}

// trace counts the system calls of processes until stop is called. It skips the test
// where the kernel does not allow that.
func trace(t *testing.T, roles map[int]string) *counter {
	t.Helper()
	var args []string
	for pid, role := range roles {
		args = append(args, fmt.Sprintf("%d=%s", pid, role))
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	x := &counter{t: t, in: in, out: daemontest.SpawnWith(t, out, "tracer", args...)}
	_ = out.Close()
	switch line := x.out.Line(); line {
	case "attached":
	case refused:
		t.Skip("system calls cannot be counted: this needs a kernel that lets processes trace their own kind " +
			"(sysctl kernel.yama.ptrace_scope at most 1, no filter against ptrace: docker run --cap-add SYS_PTRACE)")
	default:
		t.Fatalf("the tracer said %q", line)
	}
	return x
}

// take returns what was counted since the last time.
func (x *counter) take() (c calls) {
	x.t.Helper()
	if _, err := fmt.Fprintln(x.in); err != nil {
		x.t.Fatal(err)
	}
	line := x.out.Line()
	if err := json.Unmarshal([]byte(line), &c); err != nil {
		x.t.Fatalf("the tracer said %q: %v", line, err)
	}
	return c
}

// stop lets the processes go.
func (x *counter) stop() {
	x.t.Helper()
	_ = x.in.Close()
	if err := x.out.Wait(); err != nil {
		x.t.Errorf("the tracer: %v", err)
	}
}

// take returns what was counted since the last time.
func (x *tracer) take() calls {
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.count
	x.count = calls{}
	for role := range was {
		x.count[role] = map[kind]int{}
	}
	return was
}

func (x *tracer) attach() error {
	for pid := range x.roles {
		// Threads may start threads meanwhile.
		for more := true; more; {
			more = false
			tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
			if err != nil || len(tasks) == 0 {
				return fmt.Errorf("process %d: no threads: %w", pid, err)
			}
			for _, task := range tasks {
				tid, err := strconv.Atoi(filepath.Base(task))
				if err != nil {
					return err
				}
				if _, ok := x.process[tid]; ok {
					continue
				}
				if err := x.seize(tid); err != nil {
					return fmt.Errorf("process %d: %w", pid, err)
				}
				x.process[tid] = pid
				more = true
			}
		}
	}
	return nil
}

// seize attaches to a thread.
func (x *tracer) seize(tid int) error {
	if err := unix.PtraceSeize(tid); err != nil {
		return fmt.Errorf("ptrace: %w", err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return fmt.Errorf("ptrace: interrupt: %w", err)
	}
	for {
		var status unix.WaitStatus
		if _, err := wait(tid, &status); err != nil {
			return err
		}
		if eventOf(status) == unix.PTRACE_EVENT_STOP {
			break
		}
		if err := unix.PtraceCont(tid, int(status.StopSignal())); err != nil {
			return fmt.Errorf("ptrace: continue: %w", err)
		}
	}
	if err := unix.PtraceSetOptions(tid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE); err != nil {
		return fmt.Errorf("ptrace: options: %w", err)
	}
	return unix.PtraceSyscall(tid, 0)
}

// wait waits for a traced thread, or for any (-1). Children of the test that are not traced
// are their parents' business.
func wait(tid int, status *unix.WaitStatus) (int, error) {
	for {
		got, err := unix.Wait4(tid, status, unix.WALL|unix.WNOTHREAD, nil)
		if !errors.Is(err, unix.EINTR) {
			return got, err
		}
	}
}

// eventOf returns which event of ptrace a thread has stopped for, or 0.
func eventOf(status unix.WaitStatus) int { return int(status >> 16) }

// stopOfCall is the signal of a thread that has stopped at a system call.
const stopOfCall = unix.SIGTRAP | 0x80

func (x *tracer) run() error {
	for {
		var status unix.WaitStatus
		tid, err := wait(-1, &status)
		if err != nil {
			return fmt.Errorf("the traced processes are gone: %w", err)
		}
		if err := x.step(tid, status); err != nil {
			return err
		}
	}
}

// step deals with a thread that has stopped, and lets it go on.
func (x *tracer) step(tid int, status unix.WaitStatus) error {
	signal := 0
	switch {
	case status.Exited() || status.Signaled():
		delete(x.process, tid)
		return nil
	case !status.Stopped():
		return nil
	case status.StopSignal() == stopOfCall:
		x.called(tid)
	case eventOf(status) == 0:
		signal = int(status.StopSignal())
	}
	// A thread that has died meanwhile says so next.
	if err := unix.PtraceSyscall(tid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ptrace: go on: %w", err)
	}
	return nil
}

// called counts a system call that begins, and the bytes of one that ends.
func (x *tracer) called(tid int) {
	c := &call{tid: tid, pid: x.pidOf(tid)}
	if err := c.read(); err != nil {
		return // the thread is gone
	}
	role := x.roles[c.pid]
	add := func(k kind, n int) {
		x.mu.Lock()
		x.count[role][k] += n
		x.mu.Unlock()
	}
	if !c.begins {
		x.moved(c, add)
		if k := x.kindOf(c); k == sleep && (c.result == 0 || c.result == -int64(unix.EAGAIN)) {
			add(k, 1) // one that was ended, and not by its limit or a signal, which come with time
		}
		return
	}
	k := x.kindOf(c)
	if k != sleep {
		add(k, 1)
	}
	if k == send || k == receive {
		x.vectors[tid] = c.extents()
	}
	if k == send && c.number == unix.SYS_WRITEV {
		add(frames, int(c.args[2])/partsOfFrame)
	}
}

// partsOfFrame is how many parts of a writev a frame with a payload has.
const partsOfFrame = 2

// pidOf returns the process of a thread, which may be new.
func (x *tracer) pidOf(tid int) int {
	pid, ok := x.process[tid]
	for p := range x.roles {
		if ok {
			break
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", p, tid)); err == nil {
			pid, ok = p, true
		}
	}
	x.process[tid] = pid
	return pid
}

// private is the flag of futexes that processes do not share, such as those of the Go
// runtime.
const private = 128

func (x *tracer) kindOf(c *call) kind {
	fd := func() string { return x.kindOfFD(c.pid, int(c.args[0])) }
	switch c.number {
	case unix.SYS_EPOLL_PWAIT2:
		return poll
	case unix.SYS_SCHED_YIELD:
		return yield
	case unix.SYS_FUTEX:
		switch {
		case c.args[1]&private != 0 && daemons[x.roles[c.pid]] && !x.agent(c):
			return other // its monitor's, and of those that answer the test
		case c.args[1]&private != 0:
			return sched
		case c.args[1] == 0:
			return sleep
		}
		return wake
	case unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDMSG, unix.SYS_SENDTO:
		switch {
		case c.number == unix.SYS_SENDTO && x.agent(c):
			return wake // a page: frames go by writev
		case fd() == "socket":
			return send
		case fd() == "anon_inode:[eventfd]":
			return bell
		}
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVMSG, unix.SYS_RECVFROM:
		if fd() == "socket" {
			return receive
		}
	case unix.SYS_GETPID:
		return other // for the runtime's monitor, when waits had lasted: see shm.Nap
	}
	if x.byRuntime(c) {
		return other
	}
	return more
}

// kindOfFD says what a descriptor is: a "socket", "anon_inode:[eventfd]", ...
func (x *tracer) kindOfFD(pid, fd int) string {
	d := descriptor{pid, fd}
	k, ok := x.kinds[d]
	if !ok {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if err != nil {
			return ""
		}
		if k = link; strings.HasPrefix(link, "socket:") {
			k = "socket"
		}
		x.kinds[d] = k
	}
	return k
}
