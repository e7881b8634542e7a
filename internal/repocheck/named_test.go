package repocheck

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// semantics is the document whose statements are shown by tests, from the first of the
// two sections to the last.
const (
	semantics    = "docs/semantics.md"
	firstSection = "Requests and outcomes"
	lastSection  = "Domains"
)

var (
	// testName is how documents name a test: alone in backquotes.
	testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)(?:[A-Z0-9_][A-Za-z0-9_]*)?)`")
	// testFunc is the beginning of a test.
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)(?:[A-Z0-9_][A-Za-z0-9_]*)?)\(`)
)

// checkNamedTests returns the tests that documents name and that do not exist in any
// module, and the sections of docs/semantics.md that name none.
func checkNamedTests(t *testing.T, tree fs.FS) []string {
	t.Helper()
	tests := map[string]bool{}
	var documents []string
	read := func(name string) string {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, name := range files(t, tree) {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			for _, m := range testFunc.FindAllStringSubmatch(read(name), -1) {
				tests[m[1]] = true
			}
		case name == "README.md", strings.HasPrefix(name, "docs/") && path.Ext(name) == ".md":
			documents = append(documents, name)
		}
	}
	var problems []string
	for _, name := range documents {
		n := 0
		for line := range strings.Lines(read(name)) {
			n++
			for _, m := range testName.FindAllStringSubmatch(line, -1) {
				if !tests[m[1]] {
					problems = append(problems, fmt.Sprintf("%s:%d: there is no %s", name, n, m[1]))
				}
			}
		}
	}
	if slices.Contains(documents, semantics) {
		problems = append(problems, checkSections(read(semantics))...)
	} else {
		problems = append(problems, semantics+": does not exist")
	}
	return problems
}

// checkSections returns the sections of docs/semantics.md that name no test, of those
// whose statements tests show.
func checkSections(text string) []string {
	var problems []string
	inside, over := false, false
	for _, section := range strings.Split("\n"+text, "\n## ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		inside = inside || title == firstSection
		if inside && !over && !testName.MatchString(body) {
			problems = append(problems, fmt.Sprintf("%s: section %q names no test", semantics, title))
		}
		over = over || title == lastSection
	}
	if !inside || !over {
		problems = append(problems, fmt.Sprintf("%s: no sections from %q to %q", semantics, firstSection, lastSection))
	}
	return problems
}

func TestNamedTests(t *testing.T) {
	report(t, checkNamedTests(t, repository))
}

func TestNamedTestsRule(t *testing.T) {
	bad := tree(map[string]string{
		"a/a_test.go":          "package a\n\nfunc TestOne(t *testing.T) {\n}\n\nfunc (x) TestMethod() {}\n// func TestComment(\n",
		"other/go.mod":         "module other",
		"other/b/b_test.go":    "package b\nfunc FuzzTwo(f *testing.F) {}\nfunc BenchmarkThree(b *testing.B) {}\n",
		"a/a.go":               "package a\nfunc TestNoTest() {}\n",
		"README.md":            "`TestOne` (`FuzzTwo`, `BenchmarkThree`), `Tests`, `go test -run TestAny`, `TestGone`\n",
		"docs/a/b.md":          "\n| `TestMethod` | `TestComment` | `TestNoTest` |\n",
		"docs/a.txt":           "`TestElsewhere`\n",
		"a/README.md":          "`TestElsewhere`\n",
		"a/testdata/a_test.go": "package a\nfunc TestGone(t *testing.T) {}\n",
		semantics: "# Semantics\n\n## Terms\n\nnone\n\n## Requests and outcomes\n\n`TestOne`\n\n## Bytes\n\n`a_test.go`\n\n" +
			"## Domains\n\nnone\n\n## Later\n\nnone\n",
	})
	expect(t, checkNamedTests(t, bad),
		"README.md:1: there is no TestGone",
		"docs/a/b.md:2: there is no TestMethod", "docs/a/b.md:2: there is no TestComment", "docs/a/b.md:2: there is no TestNoTest",
		semantics+`: section "Bytes" names no test`, semantics+`: section "Domains" names no test`)
	expect(t, checkNamedTests(t, tree(map[string]string{"README.md": ""})), semantics+": does not exist")
	expect(t, checkSections("# Semantics\n\n## Requests and outcomes\n\n`TestOne`\n"), semantics+": no sections from")
}
