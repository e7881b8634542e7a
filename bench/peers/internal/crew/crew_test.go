package crew

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/bench/peers/internal/load"
	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A run ends with the first process that does not do its part, and nothing is left of any.
func TestCrew(t *testing.T) {
	for _, c := range []struct{ script, want string }{
		{`read job; echo '{"ready":true,"warmed":2}'; read go; echo '{"finished":true}'; read on; echo '{"result":{"messages":1}}'; read more || exit 0`, ""},
		{`read job; echo '{"error":"broken"}'`, "broken"},
		{`read job; exit 3`, "exit status 3"},
		{`exit 0`, "client process"},
		{`read job; echo nonsense; read go`, "ended early"},
		{`read job; read go`, "did not finish"},
		{`read job; echo '{"ready":true}'; read go; exit 3`, "exit status 3"},
	} {
		crew := New("sh", "-c", c.script)
		err := crew.Grow(3)
		pids := crew.PIDs()
		if err == nil {
			err = work(crew, c.want == "did not finish")
		}
		crew.Kill()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.script, err, c.want)
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("%q: process %d is left: %v", c.script, pid, err)
			}
		}
	}
}

// work has the three processes of a crew do a job, and ends one of them.
func work(c *Crew, soon bool) error {
	limit := 3 * time.Minute
	if soon {
		limit = 100 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := c.Assign(3, func(int) load.Job { return load.Job{} }); err != nil {
		return err
	}
	warmed, err := c.Ready(ctx, 3)
	if err != nil {
		return err
	}
	if err := c.Proceed(3); err != nil {
		return err
	}
	if err := c.Finish(ctx, 3); err != nil {
		return err
	}
	results, err := c.Results(ctx, 3)
	if err != nil {
		return err
	}
	if warmed != 6 || len(results) != 3 {
		return errors.New("not all have reported")
	}
	if err := c.Shrink(2); err != nil {
		return err
	}
	if c.Len() != 2 {
		return errors.New("the crew has not become smaller")
	}
	return nil
}

func TestTooManyProcesses(t *testing.T) {
	if err := New("sh").Grow(most); err == nil {
		t.Error("more processes than may report were started")
	}
}

// The tree of a process has its children's children, and their processor time counts.
func TestTreeAndCPU(t *testing.T) {
	cmd := exec.Command("sh", "-c", `sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; read x; :'; :`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	pids, err := Tree([]int{cmd.Process.Pid})
	if err != nil || len(pids) != 2 || pids[0] != cmd.Process.Pid {
		t.Fatalf("tree %v, %v", pids, err)
	}
	own, err := CPU(pids[:1])
	if err != nil {
		t.Fatal(err)
	}
	all, err := CPU(pids)
	if err != nil || all <= own {
		t.Errorf("processor time %v, of the shell alone %v, %v", all, own, err)
	}
	self, err := Tree([]int{os.Getpid()})
	if err != nil || !slices.Contains(self, pids[1]) {
		t.Errorf("tree of this process: %v, %v", self, err)
	}
	// Linux has no number that large.
	if _, err := CPU([]int{1 << 22}); err == nil {
		t.Error("a process that does not exist has processor time")
	}
}

func TestPin(t *testing.T) {
	done := make(chan error, 1)
	go func() {
		// Not unlocked: the thread ends with its goroutine.
		runtime.LockOSThread()
		done <- pinned(t)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// pinned starts a process while its thread is pinned.
func pinned(t *testing.T) error {
	unpin, err := Pin()
	if err != nil {
		return err
	}
	var now unix.CPUSet
	if err := unix.SchedGetaffinity(0, &now); err != nil {
		return err
	}
	if now.Count() != 1 {
		t.Errorf("the thread has %d processors", now.Count())
	}
	out, err := exec.Command("nproc").Output()
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(out)) != "1" {
		t.Errorf("a process that was started has %s processors", out)
	}
	return unpin()
}
