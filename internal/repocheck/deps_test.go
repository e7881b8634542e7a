package repocheck

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
)

// decision is where the dependencies of this module are argued for.
const decision = "docs/decisions/0002-dependencies.md"

// decisions are the decisions for each module, by the directory of its go.mod.
var decisions = map[string]string{
	".":                 decision,
	"grpcx":             "docs/decisions/0010-grpc.md",
	"otelx":             "docs/decisions/0025-opentelemetry.md",
	"bench/peers":       "docs/decisions/0019-peers.md",
	"test/browser":      "docs/decisions/0022-webpage.md",
	"packaging":         "docs/decisions/0028-packages.md",
	"deploy/kubernetes": "docs/decisions/0028-packages.md",
}

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
// whose first element has no dot, nor of this repository.
func thirdParty(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return strings.Contains(first, ".") && !strings.HasPrefix(name, modulePath)
}

// checkDependencies returns the direct dependencies that the decision for their
// module does not list with the version in use. Direct is what go.mod says is, what is
// imported and what is a tool: go.mod's comments alone may lag behind.
func checkDependencies(t *testing.T, tree fs.FS) []string {
	t.Helper()
	var problems []string
	all := goFiles(t, tree)
	for _, name := range files(t, tree) {
		if path.Base(name) != "go.mod" {
			continue
		}
		dir := path.Dir(name)
		if decisions[dir] == "" {
			problems = append(problems, fmt.Sprintf("%s: decisions in internal/repocheck/deps_test.go does not say where its dependencies are argued for", name))
			continue
		}
		own := slices.DeleteFunc(slices.Clone(all), func(f goFile) bool { return moduleOf(tree, f.dir) != dir })
		problems = append(problems, checkModule(t, tree, name, decisions[dir], own)...)
	}
	return problems
}

// checkModule checks the dependencies of one module.
func checkModule(t *testing.T, tree fs.FS, goMod, decision string, own []goFile) []string {
	t.Helper()
	content, err := fs.ReadFile(tree, goMod)
	if err != nil {
		t.Fatal(err)
	}
	text, err := fs.ReadFile(tree, decision)
	if err != nil {
		t.Fatal(err)
	}
	required, tools := requirements(string(content))
	var problems []string
	direct := map[module]bool{}
	for _, m := range required {
		if !m.indirect && thirdParty(m.path+"/") {
			direct[m] = true
		}
	}
	use := func(by, pkg string) {
		if m, ok := provider(required, pkg); ok {
			direct[m] = true
		} else {
			problems = append(problems, fmt.Sprintf("%s: no module in %s has %s", by, goMod, pkg))
		}
	}
	for _, tool := range tools {
		use(goMod, tool)
	}
	for _, f := range own {
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
			problems = append(problems, fmt.Sprintf("%s: no line has both %s and %s, which %s requires", decision, m.path, m.version, goMod))
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
		"grpcx/go.mod":     "module x\nrequire (\n\ta.org/five v1.2.3\n\t" + strings.TrimSuffix(modulePath, "/") + " v0.0.0\n)\n",
		"grpcx/a.go":       "package x\nimport _ \"a.org/one\"\n",
		decisions["grpcx"]: "| `a.org/six` | v1.2.3 |\n",
	})
	expect(t, checkDependencies(t, bad),
		decision+": no line has both a.org/two and v2.0.0",
		decision+": no line has both a.org/three/sub and v3.1.0",
		decision+": no line has both a.org/tool and v5.0.0",
		"x/a.go: no module in go.mod has a.org/threex",
		"other/go.mod: decisions in",
		"grpcx/a.go: no module in grpcx/go.mod has a.org/one",
		decisions["grpcx"]+": no line has both a.org/five and v1.2.3")
}
