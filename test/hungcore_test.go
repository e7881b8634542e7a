package test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// A core that makes no progress is replaced as one that has died is: workers stay attached,
// and what they had asked for is answered once. One that can still run writes its stacks.
func TestHangingCoreIsReplaced(t *testing.T) {
	c := newPair(t, sandbox.Settings{HangLimit: "4s"})
	startService(t, c, "b", "jobs")
	c.awaitService("a", "b", "jobs", "who", 0)
	conn := c.attach("a")
	if _, err := conn.Call(bounded(t), "b/jobs/who", nil); err != nil {
		t.Fatal(err)
	}
	attached := func() (id int) {
		for _, w := range c.status("a").Workers {
			if w.PID == os.Getpid() && w.Name == "test" {
				id = w.ID
			}
		}
		return id
	}
	first := attached()
	hang := func(how string, halt func(core int)) {
		t.Helper()
		before, err := c.nodes["a"].PIDs(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		halt(before.Core)
		if _, err := conn.Call(bounded(t), "b/jobs/who", nil); err != nil {
			t.Errorf("%s: the call that met the hanging core: %v", how, err)
		}
		eventually(t, how+": there is another core", func() bool {
			now, err := c.nodes["a"].PIDs(bounded(t))
			return err == nil && now.Core != before.Core && now.Core != 0
		})
	}
	hang("all of it", func(core int) {
		if err := syscall.Kill(core, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	})
	reaped := make(chan struct{})
	hang("its agent", func(core int) { haltThread(t, core, "rdmad-agent0", reaped) })
	<-reaped
	text, err := os.ReadFile(filepath.Join(c.dir, "a.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `"code":"core-hung"`); n < 2 {
		t.Errorf("said %d times that the core hung", n)
	}
	if !strings.Contains(string(text), "SIGQUIT: quit") || !strings.Contains(string(text), "internal/daemon.(*conductor)") {
		t.Error("no stacks in the log")
	}
	if now := attached(); now != first {
		t.Errorf("the caller is worker %d, and was %d", now, first)
	}
}

// A core that hangs when the node is told to stop is replaced, too, and the next one drains what is under way: it would be lost
// after node.drain_timeout, and everything would stand still until then.
func TestCoreHangsWhileItStops(t *testing.T) {
	c := newCluster(t, sandbox.Settings{HangLimit: "4s"}, "a", "b")
	c.edit("a", swap(t, `drain_timeout = "3s"`, `drain_timeout = "10m"`))
	c.start("a", "b")
	held := holdRequests(t, c, "b", 1)
	c.awaitService("a", "b", "held", "hold", 0)
	conn := c.attach("a")
	outcome := make(chan error, 1)
	go func() {
		_, err := conn.Call(bounded(t), "b/held/hold", nil)
		outcome <- err
	}()
	eventually(t, "the request is with its handler", func() bool { return held.begun.Load() > 0 })
	pids, err := c.nodes["a"].PIDs(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pids.Core, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pids.Supervisor, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	held.letGo()
	if err := <-outcome; err != nil {
		t.Errorf("the request that was under way: %v", err)
	}
	<-c.nodes["a"].Process().Done()
	text, err := os.ReadFile(filepath.Join(c.dir, "a.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"code":"core-hung"`) {
		t.Error("the log does not say that the core hung")
	}
	c.start("a")
}

// A drain that is not answered says that it may have taken effect: here the agent hangs, which has a part in the answer and none
// in the drain.
func TestDrainWithoutAnswer(t *testing.T) {
	c := newCluster(t, sandbox.Settings{HangLimit: "1m"}, "a")
	c.start("a")
	core := c.status("a").PIDs.Core
	reaped := make(chan struct{})
	haltThread(t, core, "rdmad-agent0", reaped)
	r := run(t, rdmad(t, "drain", "--socket", c.socket("a")))
	if err := syscall.Kill(core, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-reaped
	r.check(t, "drain", 1, "whether the node is in service now is not known", "rdmad status")
	eventually(t, "the next core is out of service", func() bool {
		s, err := askStatus(t, c.socket("a"))
		return err == nil && s.Drain != nil
	})
}

// haltThread stops one thread of a process, as a hanging driver would, until the process is
// killed, and then closes reaped.
func haltThread(t *testing.T, pid int, name string, reaped chan<- struct{}) {
	t.Helper()
	halted := make(chan error)
	go func() {
		defer close(reaped)
		// The tracer is a thread. It must outlive this: the children of the test are killed
		// with the thread that has started them, which may be this one (PR_SET_PDEATHSIG).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid, err := threadOf(pid, name)
		if err == nil {
			err = unix.PtraceSeize(tid)
		}
		if err == nil {
			err = unix.PtraceInterrupt(tid)
		}
		var status unix.WaitStatus
		if err == nil {
			_, err = unix.Wait4(tid, &status, unix.WALL, nil)
		}
		halted <- err
		for err == nil && !status.Exited() && !status.Signaled() {
			_, err = unix.Wait4(tid, &status, unix.WALL, nil) // it stays halted whatever it is told
		}
	}()
	if err := <-halted; err != nil {
		t.Fatalf("halt thread %s of process %d: %v (it takes root, or a kernel.yama.ptrace_scope of at most 1)", name, pid, err)
	}
}

// threadOf returns the thread of a process with a name.
func threadOf(pid int, name string) (tid int, err error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	for _, file := range names {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == name {
			return strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	return 0, fmt.Errorf("no thread %s (%v)", name, err)
}
