package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// FuzzParse feeds arbitrary documents: nothing may panic, every problem is
// located inside the file, and what is accepted is complete.
func FuzzParse(f *testing.F) {
	f.Add([]byte(Example()))
	f.Add([]byte("[node]\nname = \"\"\"\na\"\"\"\n'x'.\"y\" = [ { a = 1 }, # ]\n ]"))
	f.Add([]byte("class = [{name = 'a'}, 3]\n[[peer]]\n[peer.x]\n[[peer]]\n"))
	f.Add([]byte("a.b.c = 1\r\n[a.b]\r\n[[a]]\r\n\"\\u0061\" = '''"))
	f.Add([]byte("x = [1_, {a.b = 0x, 1_ = .5}, '1_', \"\\u0000literal 0\"]\n[node\n"))
	for _, test := range badKeys {
		f.Add([]byte(document(test.section, test.line, test.key)))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		lines := bytes.Count(doc, []byte("\n")) + 1
		x := indexLines(doc)
		for path, line := range x.lines {
			if line < 1 || line > lines {
				t.Fatalf("%s on line %d of %d", path, line, lines)
			}
		}
		c, errs := parse("fuzz.toml", doc, fakeSystem())
		if (c != nil && len(errs) == 0) == (len(errs) > 0) {
			t.Fatal("neither accepted nor refused")
		}
		for _, e := range errs {
			if e.File != "fuzz.toml" || e.Line < 1 || e.Line > lines || e.Reason == "" || strings.Contains(e.Reason, "%!") || strings.Contains(e.Error(), "\n") {
				t.Fatalf("bad error %#v in a file of %d lines", e, lines)
			}
		}
		if len(errs) > 0 {
			checkIndexed(t, doc, x)
			return
		}
		again, errs := parse("fuzz.toml", doc, fakeSystem())
		if len(errs) > 0 || !reflect.DeepEqual(c, again) || c.Digest() != again.Digest() {
			t.Fatal("parsing twice differs")
		}
	})
}

// checkIndexed checks that the line index knows every key at the top level of a
// document that is valid TOML.
func checkIndexed(t *testing.T, doc []byte, x *lineIndex) {
	var m map[string]any
	if _, err := toml.Decode(string(doc), &m); err != nil {
		return
	}
	for name := range m {
		if !bareKey(name) {
			// Escapes that Go and TOML write differently are indexed as written.
			continue
		}
		if _, ok := x.lines[name]; !ok && !bytes.ContainsRune(doc, '\\') {
			t.Fatalf("no line for key %q", name)
		}
	}
}
