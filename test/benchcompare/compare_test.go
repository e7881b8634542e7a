package benchcompare

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// repository is a small one to compare revisions of.
type repository struct {
	t   *testing.T
	dir string
	// temp is where the script may make temporary files.
	temp string
}

func (r *repository) write(name, text string) {
	r.t.Helper()
	name = filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func (r *repository) git(args ...string) {
	r.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = r.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// benchmarks is a test file with benchmarks of these names.
func benchmarks(pkg string, names ...string) string {
	text := "package " + pkg + "\n\nimport \"testing\"\n"
	for _, n := range names {
		text += "\nfunc Benchmark" + n + "(b *testing.B) {\n\tfor b.Loop() {\n\t}\n}\n"
	}
	return text
}

// newRepository makes a repository whose first revision, tagged first, has the benchmark Old
// in package a; its working tree has New there, too, and a package b.
func newRepository(t *testing.T) *repository {
	t.Helper()
	r := &repository{t: t, dir: t.TempDir(), temp: t.TempDir()}
	r.write("go.mod", "module example.org/x\n\ngo 1.26\n")
	r.write("a/a_test.go", benchmarks("a", "Old"))
	r.git("init", "-q")
	r.git("add", ".")
	r.git("commit", "-q", "-m", "first")
	r.git("tag", "first")
	r.write("a/a_test.go", benchmarks("a", "Old", "New"))
	r.write("b/b_test.go", benchmarks("b", "Other"))
	return r
}

// compare runs the script, and checks that it leaves nothing behind.
func (r *repository) compare(settings ...string) (out string, err error) {
	r.t.Helper()
	script, err := filepath.Abs("compare.sh")
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := os.Stat(script); err != nil { // go test runs this again when it changes
		r.t.Fatal(err)
	}
	cmd := exec.CommandContext(r.t.Context(), script)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+r.temp, "BENCHTIME=10x", "COUNT=2", "PACKAGES=./a")
	cmd.Env = append(cmd.Env, settings...)
	cmd.WaitDelay = time.Minute
	b, err := cmd.CombinedOutput()
	left, globErr := filepath.Glob(filepath.Join(r.temp, "bench-compare.*"))
	if globErr != nil {
		r.t.Fatal(globErr)
	}
	if len(left) > 0 {
		r.t.Errorf("%v: %v are left", settings, left)
	}
	return string(b), err
}

// Both revisions run, one after the other and then the other way round; what only one of
// them has is no error.
func TestCompare(t *testing.T) {
	r := newRepository(t)
	keep := filepath.Join(t.TempDir(), "results")
	out, err := r.compare("BASE=first", "PACKAGES=./a ./b", "KEEP="+keep)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"first has no ./b", "round 2 of 2", "\nOld", "\nNew", "\nOther", "vs base", "allocs/op"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	for file, want := range map[string]map[string]int{
		"base.txt": {"BenchmarkOld": 2, "BenchmarkNew": 0, "BenchmarkOther": 0},
		"head.txt": {"BenchmarkOld": 2, "BenchmarkNew": 2, "BenchmarkOther": 2},
	} {
		text, err := os.ReadFile(filepath.Join(keep, file))
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range want {
			if got := strings.Count(string(text), name); got != n {
				t.Errorf("%s: %s ran %d times, want %d", file, name, got, n)
			}
		}
	}
	if out, err := r.compare("BASE=first", "BENCH=New"); err != nil || !strings.Contains(out, "first has none of these benchmarks") {
		t.Errorf("%v\n%s", err, out)
	}
}

// What programs say beside their results is no part of them: benchstat would take a line with a colon for
// a setting, and compare only what has the same.
func TestCompareNoise(t *testing.T) {
	r := newRepository(t)
	r.write("a/a_test.go", "package a\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n)\n\n"+
		"func BenchmarkOld(b *testing.B) {\n\tfor b.Loop() {\n\t}\n\tfmt.Fprintln(os.Stderr, \"noise: yes\")\n}\n")
	keep := filepath.Join(t.TempDir(), "results")
	if out, err := r.compare("BASE=first", "KEEP="+keep); err != nil || strings.Contains(out, "noise") || !strings.Contains(out, "n=2") {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(keep, "head.txt"))
	if err != nil || strings.Contains(string(text), "noise") || !strings.Contains(string(text), "BenchmarkOld") {
		t.Errorf("%v\n%s", err, text)
	}
}

// What cannot be compared is said, with a status other than 0, and nothing is left.
func TestCompareRefuses(t *testing.T) {
	r := newRepository(t)
	r.write("broken/x_test.go", "package broken\n\nfunc x() int {}\n")
	r.write("failing/x_test.go", "package failing\n\nimport \"testing\"\n\nfunc BenchmarkX(b *testing.B) { b.Fatal(\"on purpose\") }\n")
	for want, settings := range map[string][]string{
		"say what to compare with":                      {"BASE="},
		"there is no revision nowhere":                  {"BASE=nowhere"},
		"there is no package ./c":                       {"BASE=first", "PACKAGES=./a ./c"},
		"PACKAGES names no package":                     {"BASE=first", "PACKAGES="},
		"want a number from 1 on":                       {"BASE=first", "COUNT=0"},
		"no benchmark in ./a matches Nothing":           {"BASE=first", "BENCH=Nothing"},
		"the tests of ./broken cannot be built in head": {"BASE=first", "PACKAGES=./broken"},
		"the benchmarks of ./failing failed in head":    {"BASE=first", "PACKAGES=./failing"},
		"on purpose": {"BASE=first", "PACKAGES=./failing"},
	} {
		if out, err := r.compare(settings...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v, no %q in:\n%s", settings, err, want, out)
		}
	}
}
