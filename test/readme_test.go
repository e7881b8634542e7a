package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

var (
	readmeProgram = regexp.MustCompile("(?s)```go\n(.*?)```")
	readmeCommand = regexp.MustCompile(`(?m)^(rdmad sandbox (?:.*? )?-- rdmad .*?)( *#.*)?$`)
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The two programs of the README talk to each other.
func TestReadmePrograms(t *testing.T) {
	programs := readmeProgram.FindAllStringSubmatch(readme(t), -1)
	if len(programs) != 2 {
		t.Fatalf("%d programs, want a client and a server", len(programs))
	}
	c := newPair(t, sandbox.Settings{})
	var built [2]string
	for i, p := range programs {
		dir := t.TempDir()
		source := filepath.Join(dir, "main.go")
		if err := os.WriteFile(source, []byte(p[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		built[i] = filepath.Join(dir, "program")
		run(t, exec.Command("go", "build", "-o", built[i], source)).check(t, "go build", 0)
	}
	serve, err := sandbox.StartProcess("the README's server", filepath.Join(c.dir, "server.log"), "env", "RDMAD_SOCKET="+c.socket("b"), built[1])
	if err != nil {
		t.Fatal(err)
	}
	defer serve.Kill()
	c.awaitService("a", "b", "greeter", "hello", 0)
	call := exec.Command(built[0])
	call.Env = []string{"RDMAD_SOCKET=" + c.socket("a")}
	if r := run(t, call); r.out != "hello world\n" {
		t.Errorf("the README's client printed %q, %q", r.out, r.errOut)
	}
	// A service manager starts again what has failed, and not what has ended well.
	c.stop("b")
	select {
	case <-serve.Done():
	case <-time.After(limit):
		t.Fatal("the README's server goes on without its daemon")
	}
	if err := serve.Ended(); err == nil || !strings.Contains(err.Error(), "exit status 1") {
		t.Errorf("%v, want status 1", err)
	}
}

// The README's commands work as they stand there, if for a shorter time.
func TestReadmeCommands(t *testing.T) {
	commands := readmeCommand.FindAllStringSubmatch(readme(t), -1)
	if len(commands) < 5 {
		t.Fatalf("found only %q", commands)
	}
	for _, m := range commands {
		args := strings.Fields(m[1])[1:]
		if strings.Contains(m[1], "bench") {
			args = append(args, "--duration", "100ms", "--warmup", "10ms")
		}
		run(t, rdmad(t, args...)).check(t, m[1], 0)
	}
}

// The program of docs/embedded.md is the daemon of its node, answers, and ends in an orderly way.
func TestEmbeddedProgram(t *testing.T) {
	text, err := os.ReadFile("../docs/embedded.md")
	if err != nil {
		t.Fatal(err)
	}
	program := readmeProgram.FindSubmatch(text)
	if program == nil {
		t.Fatal("docs/embedded.md has no program")
	}
	c := newCluster(t, sandbox.Settings{}, "a", "b")
	source, built := filepath.Join(c.dir, "main.go"), filepath.Join(c.dir, "program")
	if err := os.WriteFile(source, program[1], 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, exec.Command("go", "build", "-o", built, source)).check(t, "go build", 0)
	if err := os.Rename(filepath.Join(c.dir, "b.toml"), filepath.Join(c.dir, "config.toml")); err != nil {
		t.Fatal(err)
	}
	node, err := sandbox.StartProcess("the program of docs/embedded.md", filepath.Join(c.dir, "program.log"), "sh", "-c", "cd "+c.dir+" && exec ./program")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Kill()
	c.start("a")
	c.awaitService("a", "b", "greeter", "hello", 0)
	if r := run(t, rdmad(t, "call", "--socket", c.socket("a"), "b/greeter/hello", "world")); r.out != "hello world" {
		t.Errorf("the answer is %q, %q%s", r.out, r.errOut, node.Tail())
	}
	if err := node.Stop(limit); err != nil {
		t.Errorf("the program: %v%s", err, node.Tail())
	}
}
