package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/config"
)

// atStart are the files of a core that read keys which a reload applies from the configuration that
// they were started with, which is right where apply sets them anew. The supervisor's configuration is
// always the one in force.
var atStart = map[string]string{
	"conductor.go":          "newConductor starts agents with them",
	"liveconfig.go":         "apply is given the one that is to be in force",
	"../agent/rest.go":      "apply sets what agents do when there is nothing to do",
	"../nodelog/nodelog.go": "apply sets the level",
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
	exempt := 0
	for _, dir := range []string{".", "../agent", "../nodelog"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, m := range read.FindAllStringSubmatch(string(text), -1) {
				if live[strings.ToLower(m[1]+"."+m[2])] {
					found = append(found, m[0])
				}
			}
			switch why := atStart[name]; {
			case why != "":
				exempt++
			case len(found) > 0:
				t.Errorf("%s reads %q, which a reload applies: use live()", name, found)
			}
		}
	}
	if exempt != len(atStart) {
		t.Errorf("%d files of %d that may read such keys are there", exempt, len(atStart))
	}
}
