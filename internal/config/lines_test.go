package config

import (
	"bytes"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	const doc = `# 1
top = 1
[ node ] # 3
name = "a#b" # 4
"quo\"ted".x = 1
'lit eral' = """
[fake]
y = 7 \""" still ""
""""
after = '''
'' [[fake]] '''''
list = [ # 12
  "]", '[', # ]
  { a = 1 }, [
  2 ] ]
z = 3 # 16
[[class]]
slots = 1
[class.sub]
deep = 1
[[class]]
slots = 2
[class.sub]
deep.er = 2
[[class.inner]]
k = 1
[a."b.c".d]
e = 5
[a]
f = 6`
	x := indexLines([]byte(strings.ReplaceAll(doc, "\n", "\r\n")))
	for path, want := range map[string]int{
		"":                    1,
		"absent":              1,
		"top":                 2,
		"node":                3,
		"node.name":           4,
		"node.absent":         3,
		`node."quo\"ted".x`:   5,
		`node."lit eral"`:     6,
		"node.after":          10,
		"node.list":           12,
		"node.list[2].a":      12,
		"node.z":              16,
		"class":               17,
		"class[0]":            17,
		"class[0].slots":      18,
		"class[0].sub":        19,
		"class[0].sub.deep":   20,
		"class[1]":            21,
		"class[1].slots":      22,
		"class[1].absent":     21,
		"class[1].sub":        23,
		"class[1].sub.deep":   24,
		"class[1].inner[0].k": 26,
		"class[2].slots":      17,
		`a."b.c"`:             27,
		`a."b.c".d.e`:         28,
		"a.f":                 30,
	} {
		if got := x.at(path); got != want {
			t.Errorf("%s: line %d, want %d", path, got, want)
		}
	}
	for path := range x.lines {
		if strings.Contains(path, "fake") || strings.HasSuffix(path, "y") {
			t.Errorf("%s was found inside a string", path)
		}
	}
}

// Documents that are cut off anywhere must not confuse the scanner beyond
// missing entries.
func TestLinesOfTruncatedDocument(t *testing.T) {
	doc := []byte(Example() + "\n[x.\"y\".'z']\na = \"\"\"b\\\"\"\"\" \nc = { d = [ '''e''' ] }\n")
	for n := range doc {
		last := bytes.Count(doc[:n], []byte("\n")) + 1
		for path, line := range indexLines(doc[:n]).lines {
			if line < 1 || line > last {
				t.Fatalf("first %d bytes: %s on line %d", n, path, line)
			}
		}
	}
}
