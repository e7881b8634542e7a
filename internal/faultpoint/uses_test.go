package faultpoint_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/faultpoint"
)

var (
	use     = regexp.MustCompile(`\bfaultpoint\.Here\(`)
	literal = regexp.MustCompile(`\bfaultpoint\.Here\("([a-z_.]+)"\)`)
)

// uses returns how often each point is used in the module's code, outside of tests.
func uses(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	tree := os.DirFS("../..")
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := path.Base(name); base != "." && strings.HasPrefix(base, ".") || name == "bin" || name == "internal/faultpoint" {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		calls := literal.FindAllSubmatch(src, -1)
		if n := len(use.FindAll(src, -1)); n != len(calls) {
			t.Errorf("%s: %d calls of Here, %d of them with a name that stands there", name, n, len(calls))
		}
		for _, c := range calls {
			found[string(c[1])]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// The list and the uses are the same.
func TestPointsAreThoseUsed(t *testing.T) {
	found := uses(t)
	listed := map[string]bool{}
	for _, p := range faultpoint.Points {
		if listed[p.Name] {
			t.Errorf("%s is in the list twice", p.Name)
		}
		listed[p.Name] = true
		if found[p.Name] == 0 {
			t.Errorf("%s is in the list, and nowhere used", p.Name)
		}
		if p.After == "" || p.Role == "" {
			t.Errorf("%s: nothing says what it is", p.Name)
		}
	}
	for name, n := range found {
		if !listed[name] {
			t.Errorf("%s is used %d times, and not in the list", name, n)
		}
	}
}
