package kubernetes

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What can be checked of the Dockerfile without a builder: the version of Go is that of
// go.mod, everything that is copied exists, the names that -X sets do, every image has a tag, and
// the last stage is no root's.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	dockerfile := strings.ReplaceAll(string(text), "\\\n", " ")
	goMod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(goMod))
	stages := regexp.MustCompile(`(?m)^FROM (\S+)(?: AS (\S+))?$`).FindAllStringSubmatch(dockerfile, -1)
	if len(stages) != 2 || version == nil || !strings.HasPrefix(stages[0][1], "golang:"+version[1]+"-") {
		t.Errorf("stages %q, and go.mod says Go %q", stages, version)
	}
	for _, s := range stages {
		if _, tag, found := strings.Cut(s[1], ":"); !found || tag == "latest" {
			t.Errorf("image %s has no tag that stays", s[1])
		}
	}
	// Both stages are of one Debian: the program is linked to libraries of the first.
	suite := regexp.MustCompile(`bookworm|trixie|forky`)
	if a, b := suite.FindString(stages[0][1]), suite.FindString(stages[1][1]); a == "" || a != b {
		t.Errorf("built on %q, run on %q", a, b)
	}
	for _, m := range regexp.MustCompile(`(?m)^COPY (--from=(\S+) )?(.*)$`).FindAllStringSubmatch(dockerfile, -1) {
		if m[1] != "" {
			if m[2] != stages[0][2] {
				t.Errorf("%s: no stage %s", m[0], m[2])
			}
			continue
		}
		files := strings.Fields(m[3])
		for _, f := range files[:len(files)-1] {
			if _, err := os.Stat(filepath.Join("../..", f)); err != nil {
				t.Errorf("%s: %v", m[0], err)
			}
		}
	}
	source, err := os.ReadFile("../../internal/version/version.go")
	if err != nil {
		t.Fatal(err)
	}
	set := regexp.MustCompile(`-X github.com/rdmad/rdmad/internal/version\.(\w+)=`).FindAllStringSubmatch(dockerfile, -1)
	for _, m := range set {
		if !strings.Contains(string(source), "\nvar "+m[1]+" = \"") {
			t.Errorf("there is no %s to be set", m[1])
		}
	}
	if len(set) != 2 {
		t.Errorf("the image's program is told %q, not its version and revision", set)
	}
	if last := strings.LastIndex(dockerfile, "\nUSER "); last < strings.LastIndex(dockerfile, "\nFROM ") {
		t.Error("the image runs as root")
	}
}
