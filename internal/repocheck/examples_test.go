package repocheck

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// exampleDirs are the packages that programs import: every function and method that
// they can call has a runnable example.
var exampleDirs = []string{"client", "server", "server/node", "grpcx", "otelx"}

// checkExamples returns the exported functions and methods without an example, and the examples that are never run.
func checkExamples(t *testing.T, tree fs.FS, all []goFile) []string {
	t.Helper()
	examples, calls := map[string]bool{}, map[string]string{}
	var problems []string
	for _, f := range all {
		if !slices.Contains(exampleDirs, f.dir) {
			continue
		}
		src, err := fs.ReadFile(tree, f.path)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.path, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if f.test {
			for _, e := range doc.Examples(parsed) {
				if examples[f.dir+" "+e.Name] = true; e.Output == "" && !e.EmptyOutput {
					problems = append(problems, fmt.Sprintf("%s: Example%s is never run: its last comment does not begin with Output", f.path, e.Name))
				}
			}
			continue
		}
		for _, d := range parsed.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() {
				continue
			}
			if name, ok := exampleName(fn); ok {
				calls[f.dir+" "+name] = f.path
			}
		}
	}
	for call, path := range calls {
		if !slices.ContainsFunc([]string{"", "_"}, func(suffix string) bool { return hasExample(examples, call, suffix) }) {
			dir, name, _ := strings.Cut(call, " ")
			problems = append(problems, fmt.Sprintf("%s: no Example%s in package %s", path, name, dir))
		}
	}
	slices.Sort(problems)
	return problems
}

func hasExample(examples map[string]bool, call, suffix string) bool {
	if suffix == "" {
		return examples[call]
	}
	for have := range examples {
		// Of a function, not of a method of a type of that name.
		if rest, ok := strings.CutPrefix(have, call+suffix); ok && rest != "" && rest[0] >= 'a' && rest[0] <= 'z' {
			return true
		}
	}
	return false
}

// exampleName is what follows "Example" in the name of a function's example. ok is
// false for methods of types that programs do not see.
func exampleName(fn *ast.FuncDecl) (name string, ok bool) {
	if fn.Recv == nil {
		return fn.Name.Name, true
	}
	of := fn.Recv.List[0].Type
	if star, is := of.(*ast.StarExpr); is {
		of = star.X
	}
	id, is := of.(*ast.Ident)
	if !is || !id.IsExported() {
		return "", false
	}
	return id.Name + "_" + fn.Name.Name, true
}

func TestExamples(t *testing.T) {
	report(t, checkExamples(t, repository, goFiles(t, repository)))
}

func TestExampleRule(t *testing.T) {
	bad := tree(map[string]string{
		"client/a.go":      "package client\ntype T int\ntype u int\nfunc (T) M() {}\nfunc (*T) N() {}\nfunc (u) O() {}\nfunc F() {}\nfunc G() {}\nfunc h() {}",
		"client/a_test.go": "package client_test\nfunc ExampleT_M() {\n// Output:\n}\nfunc ExampleF_more() {\n// Output: x\n}\nfunc ExampleT() {\n// Text.\n// Output:\n}",
		"slots/b.go":       "package slots\nfunc X() {}",
	})
	expect(t, checkExamples(t, bad, goFiles(t, bad)),
		"client/a.go: no ExampleG in package client",
		"client/a.go: no ExampleT_N in package client",
		"client/a_test.go: ExampleT is never run: its last comment does not begin with Output")
}
