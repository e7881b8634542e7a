package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/config"
)

// atStart are the files that read keys that a reload applies from the configuration that
// they were started with, which is right where apply sets them anew.
var atStart = map[string]string{
	"conductor.go":  "newConductor starts agents with them",
	"supervisor.go": "its configuration is always the one in force",
	"liveconfig.go": "apply is given the one that is to be in force",
	"logger.go":     "apply sets the level",
}

// read finds reads of keys from a configuration that is called cfg.
var read = regexp.MustCompile(`\bcfg\.([A-Z][A-Za-z]*)\.([A-Z][A-Za-z]*)\b`)

// A key that a reload applies is read from the configuration in force.
func TestLiveKeysAreReadLive(t *testing.T) {
	live := map[string]bool{}
	for _, v := range (&config.Loaded{Config: config.Default()}).Values() {
		if strings.HasPrefix(v.Applies, "live") && !strings.Contains(v.Path, "[") {
			live[strings.ToLower(strings.ReplaceAll(v.Path, "_", ""))] = true
		}
	}
	if len(live) < 15 {
		t.Fatalf("live keys: %v", live)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || atStart[name] != "" {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range read.FindAllStringSubmatch(string(text), -1) {
			if live[strings.ToLower(m[1]+"."+m[2])] {
				t.Errorf("%s reads %s, which a reload applies: use live()", name, m[0])
			}
		}
	}
}
