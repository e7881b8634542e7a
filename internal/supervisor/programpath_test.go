package supervisor

import (
	"os"
	"path/filepath"
	"testing"
)

// An upgrade finds the program by the way it was started: through the link to the current release, which leads to the next
// one by then.
func TestProgramPath(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	current := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(filepath.Dir(own), current); err != nil {
		t.Fatal(err)
	}
	through := filepath.Join(current, filepath.Base(own))
	for name, want := range map[string]string{through: through, own: own, "/bin/sh": own, "none of that name": own, "": own} {
		if got, err := programPath(name); got != want || err != nil {
			t.Errorf("started as %q: %s, %v, want %s", name, got, err, want)
		}
	}
}
