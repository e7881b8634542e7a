package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/nfpm/v2/files"
)

// The runbook says how to close devices to everybody else with a file that the package has, and that does it.
func TestRuleThatClosesDevices(t *testing.T) {
	list, err := (&source{options: options{repository: ".."}}).contents(variant{"rdmad-rdma", true}, "deb")
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	_, entry, _ := strings.Cut(string(runbook), "\n### device-open-to-all\n")
	entry, _, _ = strings.Cut(entry, "\n### ")
	named := regexp.MustCompile(`/usr/\S+\.rules`).FindString(entry)
	at := slices.IndexFunc(list, func(c *files.Content) bool { return c.Destination == named })
	if at < 0 {
		t.Fatalf("the package has no file %q:\n%s", named, entry)
	}
	rules, err := os.ReadFile(list[at].Source)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(rules), `MODE="0660"`); n != 2 || strings.Contains(string(rules), "0666") {
		t.Errorf("%s:\n%s", named, rules)
	}
	for line := range strings.Lines(string(rules)) {
		if command, is := strings.CutPrefix(line, "#   "); is && !strings.Contains(entry, "`"+strings.TrimSpace(command)+"`") {
			t.Errorf("the runbook does not have: %s", command)
		}
	}
}
