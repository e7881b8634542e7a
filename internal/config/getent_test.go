package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Names that are in no file of this machine, but that its directories know, are found; what they answer is not trusted.
func TestNamesOfDirectories(t *testing.T) {
	bin := t.TempDir()
	script := `#!/bin/sh
case "$1 $2" in
"passwd rdmad-far") echo "rdmad-far:*:7301:7400:of LDAP:/nonexistent:/bin/sh" ;;
"group rdmad-far") echo "rdmad-far:*:7400:a,b" ;;
"group rdmad-other") echo "somebody:*:7400:" ;;
"group rdmad-odd") echo "rdmad-odd:*:-1:" ;;
"group rdmad-short") echo "rdmad-short" ;;
"group rdmad-slow") exec sleep 60 ;;
*) exit 2 ;;
esac
`
	if err := os.WriteFile(filepath.Join(bin, "getent"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH")) // for sleep
	this, again := thisSystem(), thisSystem
	if id, err := this.user("rdmad-far"); id != 7301 || err != nil {
		t.Errorf("user: %d, %v", id, err)
	}
	if id, err := this.group("rdmad-far"); id != 7400 || err != nil {
		t.Errorf("group: %d, %v", id, err)
	}
	for name, want := range map[string]string{"rdmad-other": "unknown group", "rdmad-odd": "not an id", "rdmad-short": "unknown group", "rdmad-nobody": "unknown group"} {
		if id, err := this.group(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v; want %q", name, id, err, want)
		}
	}
	// Two that are not answered take no longer than one, and are not said not to be there.
	began := time.Now()
	for range 2 {
		if _, err := this.group("rdmad-slow"); err == nil || !strings.Contains(err.Error(), "have not answered") {
			t.Errorf("a directory that does not answer: %v", err)
		}
	}
	if took := time.Since(began); took > 2*getentTime {
		t.Errorf("two questions took %v", took)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := again().user("rdmad-far"); err == nil || !strings.Contains(err.Error(), "unknown user") {
		t.Errorf("without getent: %v", err)
	}
}

// Nor does what the C library asks the directories itself, in a program with cgo, keep a reload for longer.
func TestLibraryThatDoesNotAnswer(t *testing.T) {
	goOn := make(chan struct{})
	defer close(goOn)
	ended := make(chan struct{}, 2)
	slow := func(string) (string, error) {
		<-goOn
		ended <- struct{}{}
		return "7301", nil
	}
	t.Cleanup(func() { <-ended; <-ended })
	d, began := newDirectories(), time.Now()
	for range 2 {
		if id, err := d.lookUp(slow, "passwd", "rdmad-far"); err == nil || !strings.Contains(err.Error(), "have not answered") {
			t.Errorf("%d, %v", id, err)
		}
	}
	if took := time.Since(began); took > 2*getentTime {
		t.Errorf("two questions took %v", took)
	}
}
