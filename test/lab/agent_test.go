package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// patience bounds every wait.
const patience = 3 * time.Minute

// startAgent runs an agent in this process and returns where it listens.
func startAgent(t *testing.T, a *agent) guestAddress {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.token = []byte("token")
	served := make(chan error, 1)
	go func() { served <- a.serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		// The children of a program that was killed may need a moment.
		err := goleak.Find()
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); {
			err = goleak.Find()
		}
		if err != nil {
			t.Error(err)
		}
	})
	return guestAddress{"token", l.Addr().String()}
}

// shell is a request to run a shell script.
func shell(t *testing.T, script string) request {
	return request{Args: []string{"sh", "-c", script}, Dir: t.TempDir(), Env: []string{"PATH=" + os.Getenv("PATH")}}
}

// connect starts a command.
func connect(t *testing.T, to guestAddress, req request) *client {
	t.Helper()
	c, err := dial(to, req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.conn.Close() })
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// do runs a command to its end.
func do(t *testing.T, to guestAddress, req request, stdin string) (stdout, stderr string, end exit) {
	t.Helper()
	c := connect(t, to, req)
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		c.input(strings.NewReader(stdin))
	}()
	var out, errs bytes.Buffer
	end, err := c.output(&out, &errs)
	if err != nil {
		t.Fatal(err)
	}
	c.conn.Close()
	<-fed
	return out.String(), errs.String(), end
}

func TestAgentRuns(t *testing.T) {
	to := startAgent(t, &agent{})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a line of input\n", 20_000)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho script $1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "WORD=word"}
	for _, test := range []struct {
		name, stdin string
		args        []string
		out, errs   string
		status      int
	}{
		{"echo", "", []string{"echo", "hello"}, "hello\n", "", 0},
		{"both outputs", "", []string{"sh", "-c", "echo one; echo two >&2; echo three"}, "one\nthree\n", "two\n", 0},
		{"status", "", []string{"sh", "-c", "exit 7"}, "", "", 7},
		{"signal", "", []string{"sh", "-c", "kill -9 $$"}, "", "", 137},
		{"directory and environment", "", []string{"sh", "-c", "pwd; echo $WORD"}, dir + "\nword\n", "", 0},
		{"input", long, []string{"cat"}, long, "", 0},
		{"unwanted input", long, []string{"echo", "done"}, "done\n", "", 0},
		{"relative program", "", []string{"./script", "x"}, "script x\n", "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, errs, end := do(t, to, request{Args: test.args, Dir: dir, Env: env}, test.stdin)
			if out != test.out || errs != test.errs || end != (exit{Status: test.status}) {
				t.Errorf("%d bytes of output %.80q, errors %q, end %v", len(out), out, errs, end)
			}
		})
	}
}

func TestAgentCannotRun(t *testing.T) {
	to := startAgent(t, &agent{})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		program, dir string
		status       int
		reason       string
	}{
		{"no-such-program", "/", 127, "there is no program no-such-program in the guest"},
		{"/no/such/program", "/", 127, "there is no program /no/such/program in the guest"},
		{file, "/", 126, "cannot run " + file},
		{"true", "/no/such/dir", 125, "there is no directory /no/such/dir in the guest"},
	} {
		req := request{Args: []string{test.program}, Dir: test.dir, Env: []string{"PATH=" + os.Getenv("PATH")}}
		_, _, end := do(t, to, req, "")
		if end.Status != test.status || !strings.Contains(end.Reason, test.reason) {
			t.Errorf("%s in %s: %v", test.program, test.dir, end)
		}
	}
}

// Where the guest sees a file of the host otherwise than it is now, the live one
// is run: here, where the host has one and the guest none.
func TestFindProgram(t *testing.T) {
	live, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(live, "no-such/dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(live, "no-such/dir/program")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/no-such/dir/program", filepath.Join(live, "link")); err != nil {
		t.Fatal(err)
	}
	a := &agent{live: live}
	for _, test := range []struct{ program, dir, want string }{
		{"/no-such/dir/program", "/", program},
		{"./program", "/no-such/dir", program},
		{"/link", "/", program},
		{"/usr/bin/env", "/", "/usr/bin/env"},
		{"/no-such/other", "/", "/no-such/other"},
		{program, "/", program},
	} {
		got, err := a.findProgram(request{Args: []string{test.program}, Dir: test.dir})
		if err != nil || got != test.want {
			t.Errorf("%s in %s: %s, %v, want %s", test.program, test.dir, got, err, test.want)
		}
	}
}

// firstLine starts a command and returns the first line that it prints, and a
// function that reads the rest.
func firstLine(t *testing.T, c *client) (string, func() (exit, error)) {
	t.Helper()
	r, w := io.Pipe()
	type result struct {
		end exit
		err error
	}
	ended := make(chan result, 1)
	go func() {
		end, err := c.output(w, io.Discard)
		w.Close()
		ended <- result{end, err}
	}()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := r.Read(b); err != nil {
			t.Fatalf("after %q: %v", line, err)
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	return string(line), func() (exit, error) {
		_, _ = io.Copy(io.Discard, r) // until the writer closes
		got := <-ended
		return got.end, got.err
	}
}

// holdFifo makes a FIFO and returns its path and a channel that is closed when
// nobody has it open for writing any more, after somebody had.
func holdFifo(t *testing.T) (string, <-chan struct{}) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	free := make(chan struct{})
	go func() {
		defer close(free)
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		_, _ = io.Copy(io.Discard, f) // nothing is written
	}()
	return path, free
}

// await waits for a channel to be closed.
func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s: not after %v", what, patience)
	}
}

// When the client goes, the program and its children are killed.
func TestAgentKillsOnDisconnect(t *testing.T) {
	to := startAgent(t, &agent{})
	fifo, free := holdFifo(t)
	c := connect(t, to, shell(t, "exec 3>"+fifo+"; sleep 1000 & echo ready; wait"))
	line, rest := firstLine(t, c)
	if line != "ready" {
		t.Fatalf("the program said %q", line)
	}
	c.conn.Close()
	if end, err := rest(); err == nil {
		t.Errorf("it ended with %v", end)
	}
	await(t, "end of the program and its child", free)
}

// What a program leaves behind is killed at its end, although it would keep the
// output open.
func TestAgentKillsLeftovers(t *testing.T) {
	to := startAgent(t, &agent{})
	fifo, free := holdFifo(t)
	out, _, end := do(t, to, shell(t, "exec 3>"+fifo+"; sleep 1000 & echo done; exit 3"), "")
	if out != "done\n" || end.Status != 3 {
		t.Errorf("output %q, end %v", out, end)
	}
	await(t, "end of the child", free)
}

func TestAgentPassesSignals(t *testing.T) {
	to := startAgent(t, &agent{})
	c := connect(t, to, shell(t, "trap 'exit 9' QUIT; echo ready; while :; do sleep 0.01; done"))
	_, rest := firstLine(t, c)
	if err := c.send(frameSignal, []byte{byte(unix.SIGQUIT)}); err != nil {
		t.Fatal(err)
	}
	if end, err := rest(); err != nil || end.Status != 9 {
		t.Errorf("end %v, %v", end, err)
	}
}

func TestAgentRefusesStrangers(t *testing.T) {
	to := startAgent(t, &agent{})
	wrong := guestAddress{"wrong", to.hostPort}
	if _, err := dial(wrong, shell(t, "true")); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("with a wrong token: %v", err)
	}
	conn, err := net.Dial("tcp", to.hostPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(conn, frameRequest, shell(t, "true")); err != nil {
		t.Fatal(err)
	}
	if kind, _, err := readFrame(conn); err == nil {
		t.Errorf("a request without a token got frame %q", kind)
	}
	if err := (&agent{}).serve(nil); err == nil {
		t.Error("an agent without a token serves")
	}
}

func TestParseAddress(t *testing.T) {
	want := guestAddress{"abc", "127.0.0.1:5"}
	if got, err := parseAddress(want.String()); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "abc", "@x", "abc@"} {
		if _, err := parseAddress(bad); err == nil || !strings.Contains(err.Error(), "lab run") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
