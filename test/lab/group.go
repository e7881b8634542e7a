package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// leftoverTimeout is how long what a program leaves behind may take to die. The
// kernel may be busy with taking down queue pairs.
const leftoverTimeout = 10 * time.Second

// group is all the processes of one command: a control group, which nothing can
// leave, or where there is none a process group.
type group struct{ *groupState }

type groupState struct {
	lock sync.Mutex
	// leader is the process id of the program, and its process group's; 0 once
	// it may be that of another.
	leader int
	// dir is the control group, or empty.
	dir string
}

// startGroup starts a command in a group of its own, in a control group below
// groups unless that is empty.
func startGroup(cmd *exec.Cmd, groups string) (group, error) {
	g := group{&groupState{}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if groups != "" {
		dir, err := os.MkdirTemp(groups, "command-")
		if err != nil {
			return g, err
		}
		g.dir = dir
		f, err := os.Open(dir)
		if err != nil {
			return g, err
		}
		defer f.Close()
		cmd.SysProcAttr.UseCgroupFD = true
		cmd.SysProcAttr.CgroupFD = int(f.Fd())
	}
	if err := cmd.Start(); err != nil {
		g.remove()
		return g, err
	}
	g.leader = cmd.Process.Pid
	return g, nil
}

// signal sends a signal to the program.
func (g group) signal(s syscall.Signal) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.leader != 0 {
		// It fails only if the program has ended, which is as good.
		_ = unix.Kill(g.leader, s)
	}
}

// kill kills the whole group. Errors mean that there is nobody left.
func (g group) kill() {
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.leader == 0 {
		return
	}
	_ = unix.Kill(-g.leader, unix.SIGKILL)
	if g.dir != "" {
		_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
	}
}

// reap waits for the program, which has ended and may be a zombie, and for the
// rest of its control group.
func (g group) reap(cmd *exec.Cmd) error {
	g.lock.Lock()
	err := cmd.Wait()
	g.leader = 0
	g.lock.Unlock()
	if g.dir != "" {
		g.awaitEmpty(time.Now().Add(leftoverTimeout))
	}
	return err
}

// awaitEmpty waits until no process is left in the control group.
func (g group) awaitEmpty(deadline time.Time) {
	events, err := os.Open(filepath.Join(g.dir, "cgroup.events"))
	if err != nil {
		return
	}
	defer events.Close()
	buf := make([]byte, 4096)
	for {
		n, err := events.ReadAt(buf, 0)
		left := time.Until(deadline)
		if n == 0 && err != nil || bytes.Contains(buf[:n], []byte("populated 0")) || left <= 0 {
			return
		}
		// The kernel reports a change of the file as an exceptional condition.
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && err != unix.EINTR {
			return
		}
	}
}

// remove removes the control group. If somebody survived in it, it stays until
// the guest ends.
func (g group) remove() {
	if g.dir != "" {
		_ = os.Remove(g.dir)
	}
}
