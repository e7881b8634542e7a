package look

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Whatever a program says that takes the place of a daemon, what is printed of it does not disturb the terminal.
func TestPlain(t *testing.T) {
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

// What is JSON stays JSON, of the same shape, and what is plain stays what it is.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{`{"a":"\u001b\u0000\u009f","b":[1,2.5,null,true]}`, `"\\u001b\\"`, `{"\n":"\ud83d\ude00"}`, `"\"`, `\u00`, "\xc2", `"` + "\xc2\x9b" + `"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := Plain(raw)
		var before, after any
		if json.Unmarshal(raw, &before) != nil {
			return
		}
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%q became %q: %v", raw, got, err)
		}
		check(t, before, after)
	})
}

// check compares what is decoded, but for texts that were not plain. Keys that become alike are not of one object of a daemon.
func check(t *testing.T, before, after any) {
	switch b := before.(type) {
	case string:
		a, _ := after.(string)
		if strings.ContainsFunc(a, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("%q became %q", b, a)
		}
		if len([]rune(a)) != len([]rune(b)) {
			t.Errorf("%q became %q", b, a)
		}
	case []any:
		a, _ := after.([]any)
		if len(a) != len(b) {
			t.Fatalf("%v became %v", b, a)
		}
		for i := range b {
			check(t, b[i], a[i])
		}
	case map[string]any:
	default:
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%v became %v", before, after)
		}
	}
}
