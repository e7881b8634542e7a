package repocheck

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
)

const (
	// architecture has the figure of the packages.
	architecture = "docs/architecture.md"
	graphMark    = "<!-- packages: go test ./internal/repocheck -run TestPackageGraph -update -->\n"
)

// notInGraph are directories whose packages the figure leaves out: tests, examples, and
// what is not linked into programs.
var notInGraph = []string{"test", "examples", "bench", "packaging", "deploy", "internal/repocheck", "internal/slotmodel", "internal/daemontest", "internal/leaktest", "internal/fabric/fabrictest", "grpcx/internal", "grpcx/examples"}

// packageGraph returns which packages of this repository each imports, tests aside.
func packageGraph(all []goFile) map[string][]string {
	left := func(dir string) bool {
		return slices.ContainsFunc(notInGraph, func(n string) bool { return dir == n || strings.HasPrefix(dir, n+"/") })
	}
	graph := map[string][]string{}
	for _, f := range all {
		if f.test || left(f.dir) {
			continue
		}
		uses := graph[f.dir]
		for _, name := range f.imports {
			dir, ours := strings.CutPrefix(name, modulePath)
			if ours && !left(dir) && !slices.Contains(uses, dir) {
				uses = append(uses, dir)
			}
		}
		graph[f.dir] = uses
	}
	return graph
}

// reaches reports that a package imports another one, directly or by others.
func reaches(graph map[string][]string, from, to string) bool {
	return slices.ContainsFunc(graph[from], func(via string) bool { return via == to || reaches(graph, via, to) })
}

// mermaid draws a graph without the arrows that follow from others.
func mermaid(graph map[string][]string) string {
	var b strings.Builder
	b.WriteString("```mermaid\ngraph TD\n")
	id := func(dir string) string { return strings.NewReplacer("/", "_", "-", "_").Replace(dir) }
	for _, from := range slices.Sorted(maps.Keys(graph)) {
		fmt.Fprintf(&b, "  %s[\"%s\"]\n", id(from), from)
	}
	for _, from := range slices.Sorted(maps.Keys(graph)) {
		for _, to := range slices.Sorted(slices.Values(graph[from])) {
			if !slices.ContainsFunc(graph[from], func(via string) bool { return via != to && reaches(graph, via, to) }) {
				fmt.Fprintf(&b, "  %s --> %s\n", id(from), id(to))
			}
		}
	}
	return b.String() + "```\n"
}

// checkGraph returns that the figure is not what the imports are.
func checkGraph(t *testing.T, tree fs.FS, write func(name, text string)) []string {
	t.Helper()
	page, err := fs.ReadFile(tree, architecture)
	if err != nil {
		t.Fatal(err)
	}
	want, err := betweenMarks(string(page), graphMark, mermaid(packageGraph(goFiles(t, tree))))
	switch {
	case err != nil:
		return []string{architecture + ": " + err.Error()}
	case want == string(page):
		return nil
	case write != nil:
		write(architecture, want)
		return nil
	}
	return []string{architecture + ": the figure of the packages is not up to date: go test ./internal/repocheck -run TestPackageGraph -update"}
}

func TestPackageGraph(t *testing.T) {
	report(t, checkGraph(t, repository, writer(t)))
}

func TestPackageGraphRule(t *testing.T) {
	of := func(imports ...string) string {
		s := "package x\n"
		for _, i := range imports {
			s += "import _ \"" + modulePath + i + "\"\n"
		}
		return s
	}
	figure := "```mermaid\ngraph TD\n  a[\"a\"]\n  b_c[\"b/c\"]\n  d[\"d\"]\n  a --> b_c\n  b_c --> d\n```\n"
	source := map[string]string{
		"a/a.go": of("b/c", "d"), "a/more.go": of("b/c"), "b/c/c.go": of("d"), "d/d.go": of(), "d/d_test.go": of("a"), "test/t.go": of("a"),
		architecture: "# A\n" + graphMark + figure + endMark + "more\n",
	}
	expect(t, checkGraph(t, tree(source), nil))
	source["d/d.go"] = "package d\nimport _ \"" + modulePath + "e\"\n"
	source["e/e.go"] = of()
	expect(t, checkGraph(t, tree(source), nil), architecture+": the figure")
	source[architecture] = "# A\n"
	expect(t, checkGraph(t, tree(source), nil), architecture+": has no part")
}
