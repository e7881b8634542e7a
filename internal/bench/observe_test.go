package bench

import (
	"slices"
	"testing"
)

func TestParsePIDs(t *testing.T) {
	got, err := parsePIDs("a.core=12,b.echo=7")
	want := []processTime{{role: "a.core", pid: 12}, {role: "b.echo", pid: 7}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parsePIDs(""); err != nil || got != nil {
		t.Errorf("empty list: %v, %v", got, err)
	}
	for _, bad := range []string{"a", "a=", "=1", "a=x", "a=0", "a=-1", "a=1,", ","} {
		if got, err := parsePIDs(bad); err == nil {
			t.Errorf("%q: accepted as %v", bad, got)
		}
	}
}
