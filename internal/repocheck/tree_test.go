package repocheck

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// modulePath is the prefix of this module's import paths.
const modulePath = "github.com/rdmad/rdmad/"

// repository is the tree under test.
var repository = os.DirFS("../..")

// goFile is a Go file with its imports.
type goFile struct {
	// path is relative to the root of the repository.
	path string
	// dir is the package's directory.
	dir string
	// imports are the import paths.
	imports []string
	// test is set for files of tests.
	test bool
}

// files returns the files of the tree that belong to the repository. Build
// output, test data and hidden directories other than those of CI do not.
func files(t *testing.T, tree fs.FS) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if !d.IsDir() {
			if d.Type().IsRegular() {
				found = append(found, p)
			}
			return nil
		}
		hidden := strings.HasPrefix(name, ".") && !slices.Contains([]string{".", ".ci", ".github"}, name)
		if hidden || p == "bin" || name == "testdata" {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// goFiles returns the Go files of the tree.
func goFiles(t *testing.T, tree fs.FS) []goFile {
	t.Helper()
	var found []goFile
	for _, p := range files(t, tree) {
		if path.Ext(p) != ".go" {
			continue
		}
		src, err := fs.ReadFile(tree, p)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), p, src, parser.ImportsOnly)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		f := goFile{path: p, dir: path.Dir(p), test: strings.HasSuffix(p, "_test.go")}
		for _, spec := range parsed.Imports {
			// The parser has made sure that it is a string literal.
			name, _ := strconv.Unquote(spec.Path.Value)
			f.imports = append(f.imports, name)
		}
		found = append(found, f)
	}
	return found
}

// report fails the test with each problem.
func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// tree makes a tree of files for testing the rules.
func tree(content map[string]string) fs.FS {
	m := fstest.MapFS{}
	for name, text := range content {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

// expect compares the problems that a rule found with the beginnings of those it
// should have found, in any order.
func expect(t *testing.T, problems []string, want ...string) {
	t.Helper()
	if len(problems) != len(want) {
		t.Errorf("got %d problems, want %d:\n%s", len(problems), len(want), strings.Join(problems, "\n"))
	}
	for _, w := range want {
		if !slices.ContainsFunc(problems, func(p string) bool { return strings.HasPrefix(p, w) }) {
			t.Errorf("no problem begins with %q:\n%s", w, strings.Join(problems, "\n"))
		}
	}
}
