package repocheck

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"testing"
)

// checkList returns the files with tests that the package's text does not name.
func checkList(tree fs.FS) []string {
	const dir = "internal/repocheck"
	doc, err := fs.ReadFile(tree, path.Join(dir, "doc.go"))
	if err != nil {
		return []string{err.Error()}
	}
	names, err := fs.Glob(tree, path.Join(dir, "*_test.go"))
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	for _, name := range names {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return []string{err.Error()}
		}
		if base := path.Base(name); strings.Contains(string(text), "\nfunc Test") && !strings.Contains(string(doc), base) {
			problems = append(problems, fmt.Sprintf("%s/doc.go: does not say what %s is for", dir, base))
		}
	}
	return problems
}

func TestList(t *testing.T) { report(t, checkList(repository)) }

func TestListRule(t *testing.T) {
	bad := tree(map[string]string{
		"internal/repocheck/doc.go":     "// Links lead somewhere\n// (a_test.go).\npackage repocheck\n",
		"internal/repocheck/a_test.go":  "package repocheck\n\nfunc TestA(t *testing.T) {}\n",
		"internal/repocheck/b_test.go":  "package repocheck\n\nfunc TestB(t *testing.T) {}\n",
		"internal/repocheck/of_test.go": "package repocheck\n\nfunc of() {}\n",
		"internal/elsewhere/c_test.go":  "package elsewhere\n\nfunc TestC(t *testing.T) {}\n",
	})
	expect(t, checkList(bad), "internal/repocheck/doc.go: does not say what b_test.go is for")
}
