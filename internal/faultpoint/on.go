//go:build faultpoints

package faultpoint

import (
	"fmt"
	"math/bits"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Enabled says that the program was built with the tag "faultpoints".
const Enabled = true

const (
	// KillEnv is the environment variable that says what to do where.
	KillEnv = "RDMAD_KILL_AT"
	// LogEnv is the environment variable that names the log of passages.
	LogEnv = "RDMAD_FAULT_LOG"
	// ArmEnv is the environment variable with the prefix of the files that arm
	// processes which run already, or start later.
	ArmEnv = "RDMAD_FAULT_ARM"
)

// action is what happens at a passage.
type action struct {
	passage uint64
	verb    string // "kill", "stop" or "call"
	f       func() // of "call"
}

// plan is what a process is to do. Passages are counted from its beginning.
type plan struct {
	passed  []atomic.Uint64 // by the index in Points
	mu      sync.Mutex
	actions [][]action
}

func newPlan() *plan {
	return &plan{passed: make([]atomic.Uint64, len(Points)), actions: make([][]action, len(Points))}
}

var (
	numbers = func() map[string]int {
		m := make(map[string]int, len(Points))
		for i, p := range Points {
			m[p.Name] = i
		}
		return m
	}()
	current atomic.Pointer[plan]
	// log is the descriptor of the log of passages, -1 for none. It is never
	// closed: the process may end at any instruction.
	log = -1
)

// The first plan is made before any other package's code runs.
func init() {
	current.Store(newPlan())
	if name := os.Getenv(LogEnv); name != "" {
		fd, err := syscall.Open(name, syscall.O_WRONLY|syscall.O_APPEND|syscall.O_CREAT|syscall.O_CLOEXEC, 0o644)
		if err != nil {
			panic(fmt.Sprintf("faultpoint: %s=%s: %v", LogEnv, name, err))
		}
		log = fd
	}
	if spec := os.Getenv(KillEnv); spec != "" {
		if err := Arm(spec); err != nil {
			panic(err.Error())
		}
	}
	if prefix := os.Getenv(ArmEnv); prefix != "" {
		armFromFiles(prefix)
	}
}

// ArmSignal makes a process look for the file that arms it. Nobody else sends it to a
// daemon or its workers, and a process that does not know it ignores it.
const ArmSignal = syscall.SIGWINCH

// armFromFiles takes what the file "next" says, and what the file with the process's
// id says whenever it gets ArmSignal. It removes what it takes, and renames
// before it reads, so that of several processes one takes it.
func armFromFiles(prefix string) {
	mine := prefix + "." + strconv.Itoa(os.Getpid())
	take := func(name string) {
		taken := mine + ".taken"
		if os.Rename(name, taken) != nil {
			return // not there, or another process's
		}
		spec, err := os.ReadFile(taken)
		if err == nil {
			err = Arm(string(spec))
		}
		if err != nil {
			panic(err.Error())
		}
		_ = os.Remove(taken)
	}
	take(prefix + ".next")
	told := make(chan os.Signal, 1)
	signal.Notify(told, ArmSignal)
	go func() {
		for range told {
			take(mine)
		}
	}()
}

// Arm says what the process is to do: "point:n" kills it with SIGKILL when it comes to
// the point for the n-th time from now on, from 1; "point:n:stop" stops it with
// SIGSTOP. Several are separated by commas. What was said before counts no more.
//
// Another process is armed through a file, if its environment has ArmEnv: write what
// to do to the file of that prefix, a dot and the process's id, and send ArmSignal; the
// file has moved when it is read, and is gone when it counts. The file of the prefix and
// ".next" arms the next process that starts.
func Arm(spec string) error {
	p := newPlan()
	for one := range strings.SplitSeq(strings.TrimSpace(spec), ",") {
		if one == "" {
			continue
		}
		fields := strings.Split(one, ":")
		verb := "kill"
		if len(fields) == 3 {
			verb = fields[2]
		}
		i, known := numbers[fields[0]]
		if len(fields) < 2 || len(fields) > 3 || !known || verb != "kill" && verb != "stop" {
			return fmt.Errorf("faultpoint: %q, want point:n or point:n:stop, with a point of the list", one)
		}
		n, err := strconv.ParseUint(fields[1], 10, 63)
		if err != nil || n == 0 {
			return fmt.Errorf("faultpoint: %q: the number of a passage, from 1", one)
		}
		p.actions[i] = append(p.actions[i], action{passage: n, verb: verb})
	}
	current.Store(p)
	note("armed", strings.TrimSpace(spec), 0)
	return nil
}

// Do has f called when the process comes to the point for the n-th time from now on, from
// 1. f runs on the goroutine that comes there: what another process could do at that
// instant, a test can do in it. Arm ends it.
func Do(name string, n int, f func()) {
	p := current.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	i := number(name)
	p.actions[i] = append(p.actions[i], action{passage: p.passed[i].Load() + uint64(n), verb: "call", f: f})
}

func number(name string) int {
	i, ok := numbers[name]
	if !ok {
		panic("faultpoint: " + name + " is not in the list of points")
	}
	return i
}

// Here marks a step: the process may end here.
func Here(name string) {
	i, p := number(name), current.Load()
	n := p.passed[i].Add(1)
	p.mu.Lock()
	actions := p.actions[i]
	p.mu.Unlock()
	for _, a := range actions {
		if a.passage != n {
			continue
		}
		switch a.verb {
		case "kill":
			note(a.verb, name, n)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // this thread has met its end before it could come here
		case "stop":
			note(a.verb, name, n)
			stop()
		case "call":
			a.f()
		}
	}
	// Powers of two show where a process comes, and about how often.
	if bits.OnesCount64(n) == 1 {
		note("pass", name, n)
	}
}

// stop stops the process. The signal is sent to this very thread, so that it does not
// run on before it stops.
func stop() {
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGSTOP))
	runtime.UnlockOSThread()
}

// note appends a line to the log: what happened, where, at which passage, and the
// process's id. One write appends as a whole.
func note(verb, name string, n uint64) {
	if log >= 0 {
		_, _ = syscall.Write(log, fmt.Appendf(nil, "%s %s %d %d\n", verb, name, n, os.Getpid()))
	}
}
