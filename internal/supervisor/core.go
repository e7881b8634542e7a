package supervisor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
)

// executable is a program that is kept open, so that it can be started again whatever
// has become of its file.
type executable struct {
	file *os.File
	// path is what it is called.
	path string
}

// programPath returns where this program was started from, by the name that it was started by: if that led through a link to a
// directory of one release, it leads to that of the next when the link does. Otherwise, as with a name that is none, it
// is where the program is.
func programPath(name string) (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	path, err := exec.LookPath(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return own, nil
	}
	there, err := os.Stat(path)
	here, err2 := os.Stat("/proc/self/exe")
	if err != nil || err2 != nil || !os.SameFile(there, here) {
		return own, nil
	}
	return path, nil
}

// openExecutable opens the program at place.
func openExecutable(place, path string) (*executable, error) {
	f, err := os.OpenFile(place, openPath, 0)
	if err != nil {
		return nil, fmt.Errorf("the program: %w", err)
	}
	return &executable{file: f, path: path}, nil
}

// command returns a command of the program, killed when ctx ends. The name is of this process, not of the
// child's: there, descriptors are moved before the program starts.
func (e *executable) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), e.file.Fd()), args...)
	cmd.Args[0] = e.path
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C at the terminal is ours to pass on
	return cmd
}

func (e *executable) close() { _ = e.file.Close() }

// runningCore is the process of a core. Its fields belong to the supervisor's goroutine,
// but err, which is written before ended is closed.
type runningCore struct {
	cmd   *exec.Cmd
	began time.Time
	link  *depot.Link
	// known: it has been seen to be ready. heir: there is something of the core before it to go on with.
	known, heir bool
	// ended is closed when the process has ended and the depot has all that it has put.
	ended chan struct{}
	err   error
}

// errUntold is how a core has ended that has drained, by a signal of somebody else, say.
var errUntold = errors.New("it ended with status 0")

// errKilled is wrapped by how a core has ended that had to be killed when it was to stop.
var errKilled = errors.New("it did not stop in time")

// errHung is what stop returns of a core that makes no progress.
var errHung = errors.New("it makes no progress")

// exitStatus returns the exit status of a core, -1 if it was killed.
func exitStatus(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return -1
	}
	return exit.ExitCode()
}

// startCore starts a core. The one before it must have ended.
func (s *supervisor) startCore(exe *executable) (*runningCore, error) {
	h, err := json.Marshal(handoff.Start{Supervisor: os.Getpid(), Source: s.setup.Source, Overrides: s.setup.Overrides, Data: s.cfg.Own(), Digest: s.cfg.Digest(), Bootstrap: s.bootstrap != nil, Observe: s.observed(), Backup: s.backup != nil, BeatNS: int64(s.beatEvery())})
	if err != nil {
		return nil, err
	}
	handoffR, handoffW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer handoffR.Close()
	written := false
	defer func() {
		if !written {
			_ = handoffW.Close()
		}
	}()
	lifelineR, lifelineW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lifelineR.Close()
	link, theirs, err := s.depot.Pair()
	if err != nil {
		return nil, errors.Join(err, lifelineW.Close())
	}
	defer theirs.Close()
	kept, _ := s.depot.Size()
	c := &runningCore{began: time.Now(), heir: kept > 0, cmd: exe.command(context.Background(), append([]string{handoff.CoreCommand}, s.setup.CoreArgs...)...), link: link, ended: make(chan struct{})}
	files := handoff.Files{Start: handoffR, Lifeline: lifelineR, Socket: s.socket, Depot: theirs, Bootstrap: s.bootstrap, Observe: s.observe}
	if s.pulse != nil {
		if files.Pulse, err = s.pulse.File(); err != nil {
			link.Abort()
			return nil, errors.Join(err, lifelineW.Close())
		}
		defer files.Pulse.Close()
	}
	c.cmd.ExtraFiles = files.List()
	if err := c.cmd.Start(); err != nil {
		link.Abort()
		return nil, errors.Join(fmt.Errorf("start the core: %w", err), lifelineW.Close())
	}
	_ = handoffR.Close() // or a core that dies before it has read would not end the write
	s.backup.CoreStarted(c.cmd.Process.Pid)
	served := make(chan struct{})
	go func() {
		link.Serve()
		close(served)
	}()
	go func() {
		c.err = c.cmd.Wait()
		_ = lifelineW.Close()
		<-served // ends with the core's end of the socket
		close(c.ended)
	}()
	// A core that dies before it has read makes this fail; its end says why. One that lives and does not read is
	// not waited for: a pipe has not room for every handoff.
	written = true
	go func() {
		_, _ = handoffW.Write(h)
		_ = handoffW.Close()
	}()
	return c, nil
}

// stop tells the core to drain and returns how it ended. It is killed after the given
// time. Once stuck is closed, which may be nil, it is left as it is, and the error is errHung. One that has just been started, and does
// not listen to the signal yet, has nothing to drain, unless it goes on where the one before it ended: that it has ended by it
// is what was wanted. Such a one is waited for first, with calls of waiting now and then, and has all of its time from then on.
func (c *runningCore) stop(patience time.Duration, stuck <-chan struct{}, log zerolog.Logger, waiting func()) error {
	if c.heir && !c.known {
		log.Info().Msg("the core goes on where another one has ended; it is told to drain when it is ready")
		c.awaitReady(waiting)
	}
	switch c.endUnless(stuck, syscall.SIGTERM, patience) {
	case left:
		return errHung
	case killed:
		event.CoreKilled.On(&log).Msg("the core does not stop; it was killed")
		return fmt.Errorf("%w: %w", errKilled, cmp.Or(c.err, errUntold))
	}
	var exit *exec.ExitError
	if errors.As(c.err, &exit) {
		if w, ok := exit.Sys().(syscall.WaitStatus); ok && w.Signaled() && w.Signal() == syscall.SIGTERM {
			return nil
		}
	}
	return c.err
}

// ready reports whether the core has said that it serves.
func (c *runningCore) ready() bool {
	select {
	case <-c.link.Ready():
		return true
	default:
		return false
	}
}

// awaitReady waits until a core is ready, or has had the time of any that starts: SIGTERM would end it, and what is under
// way on the node with it, before there is anybody to drain. It calls waiting now and then, and when the wait is over.
func (c *runningCore) awaitReady(waiting func()) {
	late := time.NewTimer(startLimit - time.Since(c.began))
	defer late.Stop()
	again := time.NewTicker(stopGrace)
	defer again.Stop()
	defer waiting()
	for {
		select {
		case <-c.link.Ready():
			return
		case <-c.ended:
			return
		case <-late.C:
			return
		case <-again.C:
			waiting()
		}
	}
}

// end sends the core a signal and waits for its end, with a SIGKILL after the given
// time. It reports whether it needed none.
func (c *runningCore) end(sig syscall.Signal, patience time.Duration) bool {
	return c.endUnless(nil, sig, patience) == ended
}

// ending is what a signal has done to a core: it has ended, had to be killed, or was left as it is.
type ending int

const (
	ended ending = iota
	killed
	left
)

// endUnless is end, but for a core that is left as it is once stuck is closed.
func (c *runningCore) endUnless(stuck <-chan struct{}, sig syscall.Signal, patience time.Duration) ending {
	_ = c.cmd.Process.Signal(sig)
	late := time.NewTimer(patience)
	defer late.Stop()
	out := killed
	select {
	case <-c.ended:
		return ended
	case <-stuck:
		out = left
	case <-late.C:
	}
	select { // more than one of them may be there, where this process has stood still
	case <-c.ended:
		return ended
	default:
	}
	if out == killed {
		_ = c.cmd.Process.Kill()
		<-c.ended
	}
	return out
}
