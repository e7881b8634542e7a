package repocheck

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// decision is where dependencies are argued for.
const decision = "docs/decisions/0002-dependencies.md"

// module is a required module.
type module struct {
	path, version string
	indirect      bool
}

// requirements reads the requirements and the tools of a go.mod file.
func requirements(goMod string) (required []module, tools []string) {
	block := ""
	for line := range strings.Lines(goMod) {
		code, comment, _ := strings.Cut(line, "//")
		words := strings.Fields(code)
		switch {
		case len(words) == 0:
			continue
		case words[0] == ")":
			block = ""
			continue
		case len(words) == 2 && words[1] == "(":
			block = words[0]
			continue
		case block != "":
			words = append([]string{block}, words...)
		}
		switch {
		case words[0] == "require" && len(words) == 3:
			indirect := strings.HasPrefix(strings.TrimSpace(comment), "indirect")
			required = append(required, module{words[1], words[2], indirect})
		case words[0] == "tool" && len(words) == 2:
			tools = append(tools, words[1])
		}
	}
	return required, tools
}

// provider returns the required module that has the package.
func provider(required []module, pkg string) (module, bool) {
	var best module
	for _, m := range required {
		if (pkg == m.path || strings.HasPrefix(pkg, m.path+"/")) && len(m.path) > len(best.path) {
			best = m
		}
	}
	return best, best.path != ""
}

// thirdParty reports whether an import path is neither of the standard library,
// whose first element has no dot, nor of this module.
func thirdParty(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return strings.Contains(first, ".") && !strings.HasPrefix(name, modulePath)
}

// checkDependencies returns the direct dependencies that the decision does not
// list with the version in use. Direct is what go.mod says is, what is imported
// and what is a tool: go.mod's comments alone may lag behind.
func checkDependencies(t *testing.T, tree fs.FS) []string {
	t.Helper()
	goMod, err := fs.ReadFile(tree, "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(tree, decision)
	if err != nil {
		t.Fatal(err)
	}
	required, tools := requirements(string(goMod))
	var problems []string
	direct := map[module]bool{}
	for _, m := range required {
		if !m.indirect {
			direct[m] = true
		}
	}
	use := func(by, pkg string) {
		if m, ok := provider(required, pkg); ok {
			direct[m] = true
		} else {
			problems = append(problems, fmt.Sprintf("%s: no module in go.mod has %s", by, pkg))
		}
	}
	for _, tool := range tools {
		use("go.mod", tool)
	}
	for _, f := range goFiles(t, tree) {
		if otherModule(tree, f.dir) {
			continue
		}
		for _, name := range f.imports {
			if thirdParty(name) {
				use(f.path, name)
			}
		}
	}
	for m := range direct {
		listed := false
		for line := range strings.Lines(string(text)) {
			listed = listed || slices.Contains(strings.FieldsFunc(line, notInVersion), m.path) &&
				slices.Contains(strings.FieldsFunc(line, notInVersion), m.version)
		}
		if !listed {
			problems = append(problems, fmt.Sprintf("%s: no line has both %s and %s, which go.mod requires", decision, m.path, m.version))
		}
	}
	return problems
}

// notInVersion separates words of a document's line.
func notInVersion(r rune) bool {
	return strings.ContainsRune(" \t\r\n|`,;()[]", r)
}

func TestDependencies(t *testing.T) {
	report(t, checkDependencies(t, repository))
}

func TestDependencyRule(t *testing.T) {
	bad := tree(map[string]string{
		"go.mod": "module " + modulePath + "\ngo 1.26\nrequire a.org/one v1.0.0\nrequire (\n\ta.org/two v2.0.0 // see below\n" +
			"\ta.org/three v3.0.0 // indirect\n\ta.org/three/sub v3.1.0 // indirect\n\ta.org/four v4.0.0 // indirect\n" +
			"\ta.org/tool v5.0.0 // indirect\n)\ntool a.org/tool/cmd/x\n",
		decision:           "| `a.org/one` | v1.0.0 |\n| `a.org/two` | v2.0.1 |\n| `a.org/three` v3.0.0 |\n",
		"x/a.go":           "package x\nimport _ \"os\"\nimport _ \"a.org/three/sub/p\"\nimport _ \"a.org/threex\"\n",
		"other/go.mod":     "module other",
		"other/a/other.go": "package a\nimport _ \"a.org/unknown\"\n",
	})
	expect(t, checkDependencies(t, bad),
		decision+": no line has both a.org/two and v2.0.0",
		decision+": no line has both a.org/three/sub and v3.1.0",
		decision+": no line has both a.org/tool and v5.0.0",
		"x/a.go: no module in go.mod has a.org/threex")
}
