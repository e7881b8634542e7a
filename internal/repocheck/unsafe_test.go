package repocheck

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

var (
	// cgoDirs may use cgo. Everything else must build with CGO_ENABLED=0.
	cgoDirs = []string{"internal/fabric/verbs", "internal/fabric/libfabric"}
	// unsafeDirs may use package unsafe, in files called *_unsafe.go. Tests are
	// not exempt: what they need is worth an accessor.
	unsafeDirs = append([]string{"shm"}, cgoDirs...)
)

// generated reports whether a file is what protoc-gen-go makes, which uses unsafe for
// constant strings only. It may not be in this module, whose programs have none.
func generated(tree fs.FS, f goFile) bool {
	return strings.HasSuffix(f.path, ".pb.go") && otherModule(tree, f.dir)
}

// checkUnsafe returns the uses of unsafe and cgo outside their fences.
func checkUnsafe(tree fs.FS, all []goFile) []string {
	var problems []string
	for _, f := range all {
		if slices.Contains(f.imports, "unsafe") && !generated(tree, f) {
			base := strings.TrimSuffix(strings.TrimSuffix(f.path, ".go"), "_test")
			if !slices.Contains(unsafeDirs, f.dir) {
				problems = append(problems, fmt.Sprintf("%s: imports unsafe, which only %s may", f.path, strings.Join(unsafeDirs, ", ")))
			} else if !strings.HasSuffix(base, "_unsafe") {
				problems = append(problems, fmt.Sprintf("%s: imports unsafe but is not called *_unsafe.go", f.path))
			}
		}
		if slices.Contains(f.imports, "C") && !slices.Contains(cgoDirs, f.dir) {
			problems = append(problems, fmt.Sprintf("%s: uses cgo, which only %s may", f.path, strings.Join(cgoDirs, ", ")))
		}
	}
	return problems
}

// checkWarnings returns the cgo flags that make warnings errors: a compiler that warns of more must not break users' builds. make lint
// sets that flag.
func checkWarnings(tree fs.FS, all []goFile) []string {
	var problems []string
	for _, f := range all {
		if !slices.Contains(f.imports, "C") {
			continue
		}
		text, err := fs.ReadFile(tree, f.path)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#cgo ") && strings.Contains(line, "-Werror") {
				problems = append(problems, fmt.Sprintf("%s: makes warnings errors in users' builds: %s", f.path, strings.TrimSpace(line)))
			}
		}
	}
	return problems
}

func TestWarnings(t *testing.T) {
	report(t, checkWarnings(repository, goFiles(t, repository)))
}

func TestWarningsRule(t *testing.T) {
	bad := tree(map[string]string{
		"internal/fabric/verbs/a.go": "package x\n/*\n#cgo CFLAGS: -Wall -Werror\n*/\nimport \"C\"",
		"internal/fabric/verbs/b.go": "package x\n/*\n#cgo CFLAGS: -Wall\n*/\nimport \"C\"",
		"internal/fabric/verbs/c.go": "package x\n\n// #cgo CFLAGS: -Werror is not used\n",
	})
	expect(t, checkWarnings(bad, goFiles(t, bad)), "internal/fabric/verbs/a.go: makes warnings errors in users' builds: #cgo CFLAGS: -Wall -Werror")
}

func TestUnsafe(t *testing.T) {
	report(t, checkUnsafe(repository, goFiles(t, repository)))
}

func TestUnsafeRule(t *testing.T) {
	const unsafe, cgo = "package x\nimport _ \"unsafe\"", "package x\nimport \"C\""
	bad := tree(map[string]string{
		"shm/a_unsafe.go":                     unsafe,
		"shm/a_unsafe_test.go":                unsafe,
		"internal/fabric/verbs/v_unsafe.go":   unsafe,
		"internal/fabric/verbs/cgo.go":        cgo,
		"grpcx/go.mod":                        "module x",
		"grpcx/x/a.pb.go":                     unsafe,
		"grpcx/x/a.go":                        unsafe,
		"slots/a.pb.go":                       unsafe,
		"shm/b.go":                            unsafe,
		"shm/b_test.go":                       unsafe,
		"slots/c_unsafe.go":                   unsafe,
		"shm/cgo.go":                          cgo,
		"internal/fabric/libfabric/unsafe.go": unsafe,
	})
	expect(t, checkUnsafe(bad, goFiles(t, bad)),
		"shm/b.go: imports unsafe but",
		"shm/b_test.go: imports unsafe but",
		"slots/c_unsafe.go: imports unsafe, which only",
		"slots/a.pb.go: imports unsafe, which only",
		"grpcx/x/a.go: imports unsafe, which only",
		"shm/cgo.go: uses cgo",
		"internal/fabric/libfabric/unsafe.go: imports unsafe but")
}
