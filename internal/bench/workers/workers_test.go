package workers

import (
	"errors"
	"io"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// next is what happens next.
func next(t *testing.T, c *Crew[int]) Event[int] {
	t.Helper()
	select {
	case e := <-c.Events:
		return e
	case <-time.After(time.Minute):
		t.Fatal("nothing happens")
		return Event[int]{}
	}
}

// Processes report in their order, end when their input does, and are replaced.
func TestCrew(t *testing.T) {
	c := New[int]([]string{"sh", "-c", `while read line; do echo $line | tr -dc 0-9; echo; done`}, 8, true)
	defer c.Kill()
	for range 3 {
		if err := c.Add(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if err := c.Assign(i, 70+i); err != nil {
			t.Fatal(err)
		}
		if e := next(t, c); e != (Event[int]{I: i, Report: 70 + i}) {
			t.Errorf("%+v", e)
		}
	}
	c.Dismiss(2)
	if e := next(t, c); e.I != 2 || !errors.Is(e.Err, io.EOF) {
		t.Errorf("%+v", e)
	}
	c.Forget(2)
	if err := c.Add(); err != nil || c.Len() != 3 {
		t.Fatalf("%d processes, %v", c.Len(), err)
	}
	pids := c.PIDs()
	c.Kill()
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("process %d is left: %v", pid, err)
		}
	}
	if len(pids) != 3 || c.Len() != 0 {
		t.Errorf("%v, then %d", pids, c.Len())
	}
}

// What a process that is gone is told is no error: why it is gone comes as an event, and only once.
func TestGone(t *testing.T) {
	c := New[int]([]string{"sh", "-c", "exit 3"}, 8, false)
	defer c.Kill()
	if err := c.Add(); err != nil {
		t.Fatal(err)
	}
	e := next(t, c)
	var status *exec.ExitError
	if !errors.As(e.Err, &status) || status.ExitCode() != 3 {
		t.Errorf("%+v", e)
	}
	if err := errors.Join(c.Assign(0, 1), c.Proceed(1)); err != nil {
		t.Error(err)
	}
}
