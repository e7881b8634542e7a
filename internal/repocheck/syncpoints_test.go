package repocheck

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// syncPoint is the beginning of a comment on an order of memory operations that somebody else relies on.
var syncPoint = regexp.MustCompile(`SYNC POINT \(([^)]+)\)`)

// loneSyncPoints returns the names of orders that the Go files have a comment on at one place only, with the file.
func loneSyncPoints(t *testing.T, tree fs.FS) map[string]string {
	t.Helper()
	lone, seen := map[string]string{}, map[string]bool{}
	for _, name := range files(t, tree) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range syncPoint.FindAllSubmatch(text, -1) {
			point := string(m[1])
			if seen[point] {
				delete(lone, point)
			} else {
				seen[point], lone[point] = true, name
			}
		}
	}
	return lone
}

// An order of memory operations has two sides, and a comment at each.
func TestSyncPointsHaveTwoSides(t *testing.T) {
	for point, name := range loneSyncPoints(t, repository) {
		t.Errorf("%s: SYNC POINT (%s) has no other side", name, point)
	}
	odd := fstest.MapFS{"a.go": {Data: []byte("// SYNC POINT (x): a\n// SYNC POINT (y): b\n")}, "b.go": {Data: []byte("// SYNC POINT (x): c\n")}}
	if got := loneSyncPoints(t, odd); len(got) != 1 || got["y"] != "a.go" {
		t.Errorf("found %v", got)
	}
}
