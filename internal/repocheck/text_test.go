package repocheck

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxLines is the length at which a Go file should become two.
const maxLines = 600

// longFiles are the Go files that may be longer, each with the reason.
var longFiles = map[string]string{}

// banned is what no source or document may contain. The patterns are written so
// that they do not match themselves.
var banned = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(^|[^A-Za-z0-9_.-])/(wor[k]|roo[t])/`), "a directory of one machine"},
	{regexp.MustCompile(`/home/[a-z]`), "a directory of one machine"},
	{regexp.MustCompile(`\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b`), "work left for later: do it or say why not"},
}

// isText reports whether the text rules are about the file: Go, shell, make,
// configuration and documents.
func isText(name string) bool {
	switch path.Ext(name) {
	case ".go", ".sh", ".mk", ".md", ".toml", ".yml", ".yaml", ".service", ".c", ".h":
		return true
	}
	return path.Base(name) == "Makefile" || strings.HasPrefix(name, ".ci/")
}

// checkText returns the lines with something banned, and the files that are too
// long.
func checkText(t *testing.T, tree fs.FS) []string {
	t.Helper()
	var problems []string
	for _, name := range files(t, tree) {
		if !isText(name) {
			continue
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			for _, b := range banned {
				if m := b.pattern.Find(line); m != nil {
					problems = append(problems, fmt.Sprintf("%s:%d: %q is %s", name, n, m, b.why))
				}
			}
		}
		if _, ok := longFiles[name]; n > maxLines && path.Ext(name) == ".go" && !ok {
			problems = append(problems, fmt.Sprintf("%s: %d lines, the limit is %d", name, n, maxLines))
		}
	}
	return problems
}

func TestText(t *testing.T) {
	report(t, checkText(t, repository))
	all := files(t, repository)
	for name := range longFiles {
		if !slices.Contains(all, name) {
			t.Errorf("longFiles lists %s, which does not exist", name)
		}
	}
}

func TestTextRule(t *testing.T) {
	word := "TO" + "DO"
	bad := tree(map[string]string{
		"a/ok.go":        "package a\n// TODOS, mktemp file.XXXXXX and https://x.org/wo" + "rk/x are fine\n",
		"a/todo.go":      "package a\n\n// " + word + ": later\n",
		"a/path.sh":      "cd /wo" + "rk/main\n",
		"README.md":      "see /ro" + "ot/x and FIX" + "ME\n",
		"Makefile":       "# XX" + "X\n",
		".ci/run":        "# HA" + "CK\n",
		"b/long.go":      "package b\n" + strings.Repeat("\n", 600),
		"b/just.go":      "package b\n" + strings.Repeat("\n", 599),
		"b/long.md":      strings.Repeat("\n", 2000),
		"b/testdata/x.c": word,
		"bin/x.sh":       word,
		".git/x.sh":      word,
		"b/data.bin":     word,
	})
	expect(t, checkText(t, bad),
		"a/todo.go:3:", "a/path.sh:1:", "README.md:1: \" /ro", "README.md:1: \"FIX", "Makefile:1:", ".ci/run:1:",
		"b/long.go: 601 lines")
}
