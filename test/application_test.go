package test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// pageProgram is a program of docs/application.md that runs at a node.
type pageProgram struct {
	*sandbox.Process
	t   *testing.T
	log string
}

// startPageProgram starts a program at a node.
func startPageProgram(t *testing.T, c *cluster, node, program string) *pageProgram {
	t.Helper()
	log := filepath.Join(c.dir, filepath.Base(program)+".log")
	p, err := sandbox.StartProcess(filepath.Base(program), log, "env", "RDMAD_SOCKET="+c.socket(node), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return &pageProgram{p, t, log}
}

// said returns how often it has said something.
func (p *pageProgram) said(text string) int {
	p.t.Helper()
	all, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Count(string(all), text)
}

// saysAgain waits until it says something once more.
func (p *pageProgram) saysAgain(text string) {
	p.t.Helper()
	before := p.said(text)
	eventually(p.t, "says "+text+" again", func() bool {
		if err := p.Ended(); err != nil {
			p.t.Fatal(err)
		}
		return p.said(text) > before
	})
}

// The programs of docs/application.md are formatted, can be built, stay attached when a core dies, attach again when
// either daemon was restarted, and end in an orderly way.
func TestApplicationPrograms(t *testing.T) {
	page, err := os.ReadFile("../docs/application.md")
	if err != nil {
		t.Fatal(err)
	}
	c := newPair(t, sandbox.Settings{})
	built := map[string]string{}
	for _, m := range readmeProgram.FindAllSubmatch(page, -1) {
		source := m[1]
		if formatted, err := format.Source(source); err != nil || string(formatted) != string(source) {
			t.Errorf("not formatted, %v:\n%s", err, source)
		}
		name := strings.ToLower(strings.Fields(string(source))[1]) // "// Name does ..."
		built[name] = filepath.Join(c.dir, name)
		main := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(main, source, 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, exec.Command("go", "build", "-o", built[name], main)).check(t, "go build", 0)
	}
	if len(built) != 3 {
		t.Fatalf("programs: %v", built)
	}
	greeter := startPageProgram(t, c, "b", built["greeter"])
	greeting := startPageProgram(t, c, "a", built["greeting"])
	const answered = "hello world\n"
	greeting.saysAgain(answered)

	crew := exec.Command(built["crew"])
	crew.Env = []string{"RDMAD_SOCKET=" + c.socket("a")}
	if r := run(t, crew); r.status != 0 || strings.Count(r.out, "hello ") != 4 {
		t.Errorf("the crew ends with %d, and prints %q, %q", r.status, r.out, r.errOut)
	}

	c.killCore("a")
	c.killCore("b")
	greeting.saysAgain(answered)
	if n, m := greeting.said("attached to node a"), greeter.said("serving on node b"); n != 1 || m != 1 {
		t.Errorf("with other cores: attached %d and %d times", n, m)
	}
	for i, node := range []string{"a", "b"} {
		c.stop(node)
		c.start(node)
		eventually(t, "both are attached again", func() bool {
			return greeting.said("attached to node a") == 2 && greeter.said("serving on node b") == 1+i
		})
		greeting.saysAgain(answered)
	}
	for _, p := range []*pageProgram{greeting, greeter} {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if how := p.Ended(); !strings.Contains(how.Error(), "exit status 0") {
			t.Error(how)
		}
	}
}
