package faultpoint_test

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/faultpoint"
)

const ourPackage = "github.com/rdmad/rdmad/internal/faultpoint"

// goTool runs a command of the go tool in the module's root.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// traces builds rdmad and returns what its binary has of this package: symbols, and
// names of points that no other text contains.
func traces(t *testing.T, args ...string) (symbols, names []string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rdmad")
	goTool(t, slices.Concat([]string{"build", "-o", name}, args, []string{"./cmd/rdmad"})...)
	binary, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if strings.HasPrefix(s.Name, ourPackage) {
			symbols = append(symbols, s.Name)
		}
	}
	for _, p := range faultpoint.Points {
		if bytes.Contains(binary, []byte(p.Name)) {
			names = append(names, p.Name)
		}
	}
	return symbols, names
}

// Without the tag a program has no code, no data and no name of a point; with it, it
// has all of them, so that the test would notice.
func TestNothingIsLeft(t *testing.T) {
	if testing.Short() {
		t.Skip("builds rdmad twice")
	}
	symbols, names := traces(t)
	if len(symbols) > 0 || len(names) > 0 {
		t.Errorf("rdmad has the symbols %v and the names %v", symbols, names)
	}
	symbols, names = traces(t, "-tags", "faultpoints")
	if !slices.Contains(symbols, ourPackage+".Here") || len(names) != len(faultpoint.Points) {
		t.Errorf("rdmad with the tag has the symbols %v and %d of %d names", symbols, len(names), len(faultpoint.Points))
	}
}

// What the path of a message relies on being inlined is, with the points in it.
func TestHotFunctionsAreInlined(t *testing.T) {
	for pkg, functions := range map[string][]string{
		"./slots": {
			"(*Ring).free", "(*Ring).unclaim", "(*Ring).Free", "(*Ring).Abort", "(*Ring).Consume", "(*Ring).noteLate", "(*Ring).Publish",
			"(*Ring).Revoke", "(*Ring).Answered", "(*Ring).WaitFree", "(*Ring).Word", "(*Ring).Take", "(*Ring).Answer", "(*Ring).Deliver",
			"(*Ring).Withdraw", "(*HintRing).Stage", "(*HintRing).Publish", "(*HintRing).Empty", "(*HintRing).PrepareSleep", "(*HintRing).PreparePark",
			"(*Bells).mark", "(*Bells).MarkLane", "(*Bells).MarkWorker", "(*OpRing).Complete", "(*OpRing).PrepareSleep",
		},
		"./client": {"(*lane).put", "(*lane).take", "(*lane).outstanding", "(*gate).enter", "(*gate).leave", "(*waiting).wakeFree", "(*Future).settled"},
	} {
		out := goTool(t, "build", "-gcflags=-m", pkg)
		for _, f := range functions {
			if !strings.Contains(out, ": can inline "+f+"\n") {
				t.Errorf("%s: %s is not inlined any more", pkg, f)
			}
		}
	}
}
