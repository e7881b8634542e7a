package bench

import (
	"os"
	"slices"
	"testing"
	"time"
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

func TestParseStat(t *testing.T) {
	const stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 9 0 100 1 2"
	if got, err := parseStat(stat); err != nil || got != 2810*time.Millisecond {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "42 (x) S 1", "42 (x) S 1 2 3 4 5 6 7 8 9 10 x 12"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q: accepted as %v", bad, got)
		}
	}
}

func TestTimeOf(t *testing.T) {
	if _, err := timeOf(os.Getpid()); err != nil {
		t.Error(err)
	}
	if _, err := timeOf(1 << 30); err == nil {
		t.Error("a process that cannot exist has a processor time")
	}
}
