package config

import (
	"os"
	"strings"
	"testing"
)

const docsPage = "../../docs/config.md"

// The marks of docs/config.md between which Docs stands.
const (
	docsBegin = "<!-- keys -->\n"
	docsEnd   = "<!-- end -->\n"
)

// The reference is made of the same table as everything else.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), docsBegin)
	_, tail, ok2 := strings.Cut(rest, docsEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks", docsPage)
	}
	want := head + docsBegin + Docs() + docsEnd + tail
	if *update {
		if err := os.WriteFile(docsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(data) {
		t.Errorf("%s is not what the keys are: go test ./internal/config -run TestDocs -update", docsPage)
	}
}

// Types are named as they are.
func TestDocsTypes(t *testing.T) {
	text := Docs()
	for _, want := range []string{
		"| `drain_timeout` | duration | `\"10s\"` | 0s to 1h | live |",
		"| `workers` | integer | `1024` | 1 to 4095 | live, for processes that attach from then on |",
		"| `region_bytes` | integer, bytes |", "| `worker_slots` | integer, percent |",
		"| `enabled` | boolean | `true` |", "| `allow` | array of strings | `[]` |", "| `level` | string | `\"info\"` |", "| `listen` | string | `\"\"` |",
		"| `slot_size` | integer, bytes | required |", "| `spin` | duration |", "| `address` | string | required |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s", want)
		}
	}
}
