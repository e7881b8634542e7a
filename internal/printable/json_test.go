package printable_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/printable"
)

func TestJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"x\u001b]0;title\u0007\u007f\u009b2J"}`: `{"a":"x?]0;title???2J"}`,
		"\"\x7f\xc2\x9b\"":                            `"??"`,
		`"\r\nb\\u001b\t\"é😀"`:                        `"  b\\u001b \"é😀"`,
		`"\b\f\/\u000a\u00e9"`:                        `"??\/ \u00e9"`,
	} {
		if got := printable.JSON([]byte(in)); string(got) != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

// What is JSON stays JSON, of the same shape, and what is plain stays what it is.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":"\u001b\u0000\u009f","b":[1,2.5,null,true]}`, `"\\u001b\\"`, `{"\n":"\ud83d\ude00"}`, `"\"`, `\u00`, "\xc2", `"` + "\xc2\x9b" + `"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := printable.JSON(raw)
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
