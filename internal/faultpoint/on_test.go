//go:build faultpoints

package faultpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childEnv makes the test binary a process that passes points, one for each byte that
// it reads.
const childEnv = "RDMAD_FAULTPOINT_CHILD"

func TestMain(m *testing.M) {
	if point := os.Getenv(childEnv); point != "" {
		child(point)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child answers each byte of its input with how often it has passed the point.
func child(point string) {
	in := bufio.NewReader(os.Stdin)
	for n := 1; ; n++ {
		if _, err := in.ReadByte(); err != nil {
			return
		}
		Here(point)
		fmt.Println(n)
	}
}

const somewhere, elsewhere = "claim.after_cas", "publish.after"

// process is a child under test.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
	log string
}

func startChild(t *testing.T, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0]), log: filepath.Join(t.TempDir(), "log")}
	p.cmd.Env = append(append(os.Environ(), childEnv+"="+somewhere, LogEnv+"="+p.log), env...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// pass lets the child pass its point and reports whether it lives.
func (p *process) pass() bool {
	p.t.Helper()
	if _, err := p.in.Write([]byte{'x'}); err != nil {
		return false
	}
	return p.out.Scan()
}

// killed waits for the end of the child, which must be by SIGKILL.
func (p *process) killed() {
	p.t.Helper()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Errorf("the process ended with %v", err)
	}
}

func (p *process) wantLog(want ...string) {
	p.t.Helper()
	got, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	pid := fmt.Sprintf(" %d\n", p.cmd.Process.Pid)
	if string(got) != strings.Join(want, pid)+pid {
		p.t.Errorf("the log is\n%swant\n%s", got, strings.Join(want, pid)+pid)
	}
}

func TestKillAtThirdPassage(t *testing.T) {
	p := startChild(t, KillEnv+"="+elsewhere+":1,"+somewhere+":3")
	for range 2 {
		if !p.pass() {
			t.Fatal("the process died too early")
		}
	}
	if p.pass() {
		t.Error("the process lives")
	}
	p.killed()
	p.wantLog("armed "+elsewhere+":1,"+somewhere+":3 0", "pass "+somewhere+" 1", "pass "+somewhere+" 2", "kill "+somewhere+" 3")
}

func TestStopAtFirstPassage(t *testing.T) {
	p := startChild(t, KillEnv+"="+somewhere+":1:stop")
	if _, err := p.in.Write([]byte{'x'}); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("status %#x, %v", status, err)
	}
	p.wantLog("armed "+somewhere+":1:stop 0", "stop "+somewhere+" 1")
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if !p.out.Scan() || !p.pass() {
		t.Error("it does not go on")
	}
}

// A process that runs is armed through a file, and passages count from then on.
func TestArmThroughFile(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "arm")
	p := startChild(t, ArmEnv+"="+prefix)
	if !p.pass() {
		t.Fatal("the process died before it was armed")
	}
	name := prefix + "." + strconv.Itoa(p.cmd.Process.Pid)
	if err := os.WriteFile(name, []byte(somewhere+":2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(ArmSignal); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := os.Stat(name)
		_, taken := os.Stat(name + ".taken")
		if err != nil && taken != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody took the file")
		}
	}
	if !p.pass() {
		t.Fatal("passages before it was armed count")
	}
	if p.pass() {
		t.Error("the process lives")
	}
	p.killed()
}

// Only the first of two processes that start takes the file for the next one.
func TestArmTheNext(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "arm")
	if err := os.WriteFile(prefix+".next", []byte(somewhere+":1"), 0o644); err != nil {
		t.Fatal(err)
	}
	first := startChild(t, ArmEnv+"="+prefix)
	if first.pass() {
		t.Error("the first process lives")
	}
	first.killed()
	if second := startChild(t, ArmEnv+"="+prefix); !second.pass() {
		t.Error("the second process died")
	}
}

func TestDo(t *testing.T) {
	if err := Arm(""); err != nil {
		t.Fatal(err)
	}
	Here(somewhere)
	calls := 0
	Do(somewhere, 2, func() {
		calls++
		Here(somewhere) // passes points itself
	})
	for range 5 {
		Here(somewhere)
	}
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
	if err := Arm(""); err != nil {
		t.Fatal(err)
	}
}

func TestArmRefuses(t *testing.T) {
	for _, spec := range []string{"nowhere:1", somewhere, somewhere + ":0", somewhere + ":x", somewhere + ":1:sing", somewhere + ":1:kill:2", ":1"} {
		if err := Arm(spec); err == nil || !strings.Contains(err.Error(), spec) {
			t.Errorf("%q: %v", spec, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a point that is not in the list is passed")
		}
	}()
	Here("no.where")
}
