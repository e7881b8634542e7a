package look

import (
	"encoding/json"
	"strings"
	"testing"
)

// Whatever a program says that takes the place of a daemon, what is printed of it does not disturb the terminal.
func TestPlainStatus(t *testing.T) {
	const hostile = "a\x1b]0;title\x07\x7f\u009b2J\r\nb\\u001b\t\"é😀"
	raw, err := json.Marshal(map[string]any{"node": hostile, "version": hostile, "errors": []any{map[string]string{"text": hostile}}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	const want = "a?]0;title???2J  b\\u001b \"é😀"
	if s.Node != want || s.Version != want || s.Errors[0].Text != want {
		t.Errorf("%q, %q, %q, want %q", s.Node, s.Version, s.Errors[0].Text, want)
	}
}

// The same for the line of a list that is empty.
func TestPlainEmptyList(t *testing.T) {
	raw, err := json.Marshal(map[string]any{"node": "a\x1b]0;title\x07", "lanes": []any{}})
	if err != nil {
		t.Fatal(err)
	}
	node, items, err := Lanes.Select(raw, &Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Lanes.Print(&out, node, items, false); err != nil || out.String() != "node a?]0;title? has no lanes\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}
