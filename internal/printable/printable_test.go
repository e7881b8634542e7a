package printable_test

import (
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/printable"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "pages": "pages", "a\nb\x1b[0m\x00": "a?b?[0m?", "é~ ": "??~ ", strings.Repeat("x", 70): strings.Repeat("x", 64),
	} {
		if got := printable.Text(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
	if got := printable.Limited("abc\td", 4); got != "abc?" {
		t.Errorf("%q", got)
	}
}
