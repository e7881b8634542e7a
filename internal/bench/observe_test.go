package bench

import (
	"os"
	"runtime"
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

func TestTimeOf(t *testing.T) {
	before, err := timeOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 1e6; n++ {
		runtime.Gosched()
	}
	if after, err := timeOf(os.Getpid()); err != nil || after <= before || after > before+time.Minute {
		t.Errorf("%v, %v, then %v", before, err, after)
	}
	if _, err := timeOf(1 << 22); err == nil { // PID_MAX_LIMIT
		t.Error("a process that cannot exist has a processor time")
	}
}
