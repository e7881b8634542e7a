package look

import (
	"encoding/json"
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
