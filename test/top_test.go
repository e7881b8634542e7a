package test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
	"github.com/rdmad/rdmad/cmd/rdmad/top"
)

// Without a terminal there are plain tables, again and again.
func TestTopPlain(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	r := runInTime(t, func() *exec.Cmd {
		return rdmad(t, "top", "--interval", "100ms", "--count", "3", "--sort", "requests", "--filter", "b", "--socket", c.socket("a"))
	})
	r.check(t, "top", 0, "node a: running", "LANE", "REQUESTS*", "PEER", "connected")
	if strings.Count(r.out, "node a: ") != 3 || strings.ContainsRune(r.out, '\x1b') {
		t.Errorf("three looks without escape sequences:\n%s", r.out)
	}
	runInTime(t, func() *exec.Cmd { return rdmad(t, "top", "--once", "--socket", c.socket("b")) }).check(t, "top --once", 0, "SERVICE", "echo")
}

// Of a core that hangs there is what it has counted, and of one that is gone the last that
// it said, until it is back.
func TestTopOfHangingCore(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	resume := halt(t, c.status("a").PIDs.Core)
	r := run(t, rdmad(t, "top", "--once", "--socket", c.socket("a")))
	resume()
	r.check(t, "top", 1, "COUNTERS ONLY", "node a", "LANE", "small", "peers - of -", "- workers")
	if strings.Count(r.errOut, "\n") != 1 {
		t.Errorf("not one line:\n%s", r.errOut)
	}
}

// The file of counters is also found elsewhere than beside the socket: by a flag, or by what the daemon has said before.
func TestTopOfCountersElsewhere(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "counted")
	c := newCluster(t, sandbox.Settings{Extra: fmt.Sprintf("[observe]\ncounters = %q\n", elsewhere)}, "a")
	c.start("a")
	source := &top.Source{Socket: c.socket("a")}
	defer source.Close()
	if _, err := source.Look(bounded(t)); err != nil {
		t.Fatal(err)
	}
	resume := halt(t, c.status("a").PIDs.Core)
	s, err := source.Look(bounded(t))
	never := run(t, rdmad(t, "top", "--once", "--socket", c.socket("a")))
	told := run(t, rdmad(t, "top", "--once", "--socket", c.socket("a"), "--file", elsewhere))
	resume()
	if s == nil || s.Node != "a" || !errors.Is(err, top.ErrCountersOnly) {
		t.Errorf("%+v, %v", s, err)
	}
	told.check(t, "top --file", 1, "COUNTERS ONLY", "node a")
	never.check(t, "top", 1, "does not answer", "counters", strings.TrimSuffix(c.socket("a"), ".sock")+".counters", "--file")
}

// terminal is a pseudo terminal with a command on it.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	mu     sync.Mutex
	text   strings.Builder
	over   chan struct{} // nothing more comes
}

// onTerminal starts a command on a terminal of 80 columns and 24 lines.
func onTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo terminals here (mount -t devpts devpts /dev/pts): %v", err)
	}
	e := &terminal{t: t, master: master, cmd: cmd, over: make(chan struct{})}
	var number int
	e.control(func(fd int) error {
		return errors.Join(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0), func() (err error) { number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); return err }())
	})
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	e.size(80, 24)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.over)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			e.mu.Lock()
			e.text.Write(buf[:n])
			e.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-e.over // with the last descriptor of the slave
		_ = master.Close()
	})
	return e
}

func (e *terminal) control(f func(fd int) error) {
	e.t.Helper()
	raw, err := e.master.SyscallConn()
	if err == nil {
		var ferr error
		err = errors.Join(raw.Control(func(fd uintptr) { ferr = f(int(fd)) }), ferr)
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *terminal) size(columns, lines uint16) {
	e.t.Helper()
	e.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines})
	})
}

// echoes reports whether the terminal shows what is typed, as it does unless a program
// has changed it.
func (e *terminal) echoes() (on bool) {
	e.control(func(fd int) error {
		settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			on = settings.Lflag&unix.ECHO != 0
		}
		return err
	})
	return on
}

// press types keys, and waits until the terminal is sent a text after that.
func (e *terminal) press(keys, text string) {
	e.t.Helper()
	e.mu.Lock()
	before := e.text.Len()
	e.mu.Unlock()
	if _, err := io.WriteString(e.master, keys); err != nil {
		e.t.Fatal(err)
	}
	e.await(before, text)
}

// await waits until the terminal was sent a text, from a place on.
func (e *terminal) await(from int, text string) {
	e.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(pollPause) {
		e.mu.Lock()
		got := e.text.String()[from:]
		e.mu.Unlock()
		if strings.Contains(got, text) {
			return
		}
		if time.Now().After(end) {
			e.t.Fatalf("no %q in %q", text, got)
		}
	}
}

func (e *terminal) written() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.text.Len()
}

// On a terminal that does not tell its size, as serial consoles do, there are plain tables and not an empty screen.
func TestTopOnTerminalWithoutSize(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	e := onTerminal(t, exec.Command("sh", "-c", `stty rows 0 columns 0 && exec "$0" top --interval 100ms --socket "$1"`, programs.rdmad, c.socket("a")))
	e.await(0, "node a: running")
	e.mu.Lock()
	defer e.mu.Unlock()
	if strings.Contains(e.text.String(), "\x1b[") {
		t.Errorf("it draws on a screen: %q", e.text.String())
	}
}

// On a terminal keys are obeyed, the size may change, the daemon may go and come back, and
// in the end the terminal is as it was.
func TestTopOnTerminal(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	e := onTerminal(t, rdmad(t, "top", "--interval", "100ms", "--socket", c.socket("a")))
	e.await(0, "node a: running")
	if e.echoes() {
		t.Error("the terminal is not raw")
	}
	e.press("2", "[2 lanes]")
	e.press("/", "filter: _")
	e.press("small\r", "filter: small")
	e.press("\x1b", "large")
	e.press("p", "PAUSED")
	e.press("p", "every 100ms")
	e.press("?", "shift+tab")
	e.press("?", "LANE")
	from := e.written()
	e.size(120, 40)
	e.await(from, "DOMAIN")
	from = e.written()
	c.stop("a")
	e.await(from, "STALE")
	from = e.written()
	c.start("a")
	e.await(from, "every 100ms")
	if _, err := io.WriteString(e.master, "q"); err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if e.await(0, "\x1b[?1049l"); !e.echoes() {
		t.Error("the terminal is not as it was")
	}
}
