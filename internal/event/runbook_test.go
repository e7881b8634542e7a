package event

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the entries into docs/runbook.md")

// The marks of the page between which the entries stand.
const (
	page        = "../../docs/runbook.md"
	pageBegin   = "<!-- events -->\n"
	pageEnd     = "<!-- end -->\n"
	updateEvent = "go test ./internal/event -run TestRunbook -update"
)

// The runbook has every code of the table, and what the table says of it.
func TestRunbook(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), pageBegin)
	_, tail, ok2 := strings.Cut(rest, pageEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no marks", page)
	}
	want := head + pageBegin + Runbook() + pageEnd + tail
	for _, i := range All() {
		if !strings.Contains(want, "\n### "+string(i.Code)+"\n") {
			t.Errorf("no entry for %s", i.Code)
		}
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s is not what the table says: %s", page, updateEvent)
	}
}
