package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The environment of a worker process.
const (
	roleEnv = "RDMAD_TEST_ROLE"
	argsEnv = "RDMAD_TEST_ARGS"
)

// roleArgs are what worker processes are told; each role has a use for some.
type roleArgs struct {
	Socket string
	// Node is the node to call.
	Node string
	// Service is the name of the service to offer or to call.
	Service string
	// Handlers is how many requests a service handles at once.
	Handlers int
	Messages int
	Seed     uint64
	// Journal is a file that all processes append to.
	Journal string
	// Most is the largest message in bytes, Depth the most futures at a time.
	Most, Depth int
	// Method and Sizes are for loads.
	Method string
	Sizes  []int
}

// roles are what a worker process can be. It writes what it has to say with the
// encoder, and should end when ctx does.
var roles = map[string]func(context.Context, *roleArgs, *json.Encoder) error{
	"attach":    attachRole,
	"idler":     idlerRole,
	"attack":    attackRole,
	"victim":    victimRole,
	"counting":  countingRole,
	"early":     earlyRole,
	"hang":      hangRole,
	"hoard":     hoardRole,
	"hostile":   hostileRole,
	"load":      loadRole,
	"mixed":     mixedRole,
	"parent":    parentRole,
	"child":     childRole,
	"squatter":  squatterRole,
	"noted":     notedRole,
	"ordered":   orderedRole,
	"service":   serviceRole,
	"shared":    sharedRole,
	"styles":    stylesRole,
	"large":     largeRole,
	"streaming": streamingRole,
	"stuff":     stuffRole,
	"regions":   regionsRole,
	"flooded":   floodedRole,
}

// play is the main function of a worker process. Its context ends with standard
// input or a SIGTERM.
func play(role string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var args roleArgs
	if err := json.Unmarshal([]byte(os.Getenv(argsEnv)), &args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if err := roles[role](ctx, &args, json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// member is a worker process of a test. It is killed when the test ends, if it
// has not ended by then.
type member struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	says *json.Decoder
	errs bytes.Buffer
	once sync.Once
	err  error
}

// startMember starts a worker process; changes may alter how.
func startMember(t *testing.T, role string, args roleArgs, changes ...func(*exec.Cmd)) *member {
	t.Helper()
	encoded, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	m := &member{t: t, name: role, cmd: exec.Command(programs.self)}
	m.cmd.Env = append(os.Environ(), roleEnv+"="+role, argsEnv+"="+string(encoded))
	m.cmd.Stderr = &m.errs
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.says = json.NewDecoder(out)
	for _, change := range changes {
		change(m.cmd)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.kill() })
	return m
}

func (m *member) pid() int { return m.cmd.Process.Pid }

// hear waits for the next thing that the process says.
func (m *member) hear(v any) {
	m.t.Helper()
	m.hearWithin(limit, v)
}

func (m *member) hearWithin(d time.Duration, v any) {
	m.t.Helper()
	late := time.AfterFunc(d, func() { _ = m.cmd.Process.Kill() })
	err := m.says.Decode(v)
	late.Stop()
	if err != nil {
		err = fmt.Errorf("%w; it ended: %w", err, m.wait())
		m.t.Fatalf("a %s process said nothing: %v\n%s", m.name, err, m.errs.String())
	}
}

// wait waits until the process has ended.
func (m *member) wait() error {
	m.once.Do(func() { m.err = m.cmd.Wait() })
	return m.err
}

// finish tells the process to end, by closing its standard input, and checks
// that it ends well.
func (m *member) finish() {
	m.t.Helper()
	_ = m.in.Close()
	late := time.AfterFunc(limit, func() { _ = m.cmd.Process.Kill() })
	defer late.Stop()
	if err := m.wait(); err != nil {
		m.t.Errorf("a %s process: %v\n%s", m.name, err, m.errs.String())
	}
}

// kill kills the process and returns when it is gone.
func (m *member) kill() error {
	_ = m.cmd.Process.Kill()
	return m.wait()
}
