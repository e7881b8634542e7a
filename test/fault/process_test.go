//go:build faultpoints

package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/faultpoint"
)

// process is a victim or a servant.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.Reader
	errs bytes.Buffer
	log  string
	// over is closed when it has ended, with err.
	over chan struct{}
	err  error
}

// spawn starts a helper. It is killed when the test ends, if it has not ended by then.
func (r *rig) spawn(t *testing.T, helper string, args any) *process {
	t.Helper()
	encoded, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(os.Args[0], helper, string(encoded)), log: r.file("log"), over: make(chan struct{})}
	// Few threads: a process lives for milliseconds.
	p.cmd.Env = append(os.Environ(), faultpoint.LogEnv+"="+p.log, faultpoint.ArmEnv+"=", "GOMAXPROCS=2", "GOGC=off")
	p.cmd.Stderr = &p.errs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	// Not StdoutPipe, which Wait closes.
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out, p.cmd.Stdout = read, write
	err = p.cmd.Start()
	_ = write.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.over)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.over
		_ = read.Close()
		_ = p.in.Close()
	})
	return p
}

// ready waits until the process says something, and reports whether it did before its
// end.
func (p *process) ready() bool {
	n, _ := p.out.Read(make([]byte, 64))
	return n > 0
}

// end waits for its end and reports whether it was killed by SIGKILL. Any other end
// than a good one is an error.
func (p *process) end() (killed bool) {
	p.t.Helper()
	select {
	case <-p.over:
	case <-time.After(limit):
		p.t.Fatalf("it does not end; it was at\n%s", p.tail())
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if p.err != nil {
		p.t.Errorf("it ended by itself: %v\n%s%s", p.err, p.errs.String(), p.tail())
	}
	return false
}

// passages is what a log says of a process since it was last armed: how often it came to
// each point at least, as a power of two, in the order in which it first came there.
type passages struct {
	order []string
	times map[string]int
	// done is where something happened to it.
	done map[string]bool
}

func (p *process) passages() *passages { return readPassages(p.t, p.log, p.cmd.Process.Pid) }

// readPassages reads what a log says of the process pid.
func readPassages(t *testing.T, log string, pid int) (s *passages) {
	t.Helper()
	s = newPassages()
	for _, line := range linesOf(t, log) {
		f := strings.Split(strings.TrimSpace(line), " ")
		if len(f) != 4 || f[3] != strconv.Itoa(pid) {
			continue
		}
		name := f[1]
		n, err := strconv.Atoi(f[2])
		if err != nil {
			t.Fatalf("%s: %q", log, line)
		}
		switch f[0] {
		case "armed":
			s = newPassages()
		case "pass":
			if s.times[name] == 0 {
				s.order = append(s.order, name)
			}
			s.times[name] = max(s.times[name], n)
		default:
			s.done[name] = true
		}
	}
	return s
}

func newPassages() *passages { return &passages{times: map[string]int{}, done: map[string]bool{}} }

// tail is the end of its log.
func (p *process) tail() string {
	data, _ := os.ReadFile(p.log)
	return string(data[max(0, len(data)-400):])
}

// awaitStop waits until the process is stopped, and reports whether it is: it may end
// instead.
func (p *process) awaitStop() (stopped bool) {
	p.t.Helper()
	daemontest.Eventually(p.t, "the process is stopped", func() error {
		select {
		case <-p.over:
			return nil
		default:
		}
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "stat"))
		if err != nil {
			return nil // it ends at this moment
		}
		if after := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(after, []byte(" T")) {
			return errors.New("it runs")
		}
		stopped = true
		return nil
	})
	return stopped
}

// resume lets a stopped process go on.
func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
