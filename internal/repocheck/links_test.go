package repocheck

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	// pageLink is a link of a page, and an image.
	pageLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	// codeSpan is what is no link, whatever it looks like.
	codeSpan = regexp.MustCompile("`[^`]*`")
	// headingLink is a link in a heading, of which only the text counts.
	headingLink = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// prose returns the lines of a page outside its blocks of code, with their numbers; the
// others are empty.
func prose(page string) []string {
	var lines []string
	fenced := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			fenced = !fenced
		}
		if fence || fenced {
			line = ""
		}
		lines = append(lines, line)
	}
	return lines
}

// anchors returns how links name the headings of a page, as GitHub does: in lower case,
// without punctuation, with dashes for spaces, and numbered when there are several.
func anchors(page string) []string {
	var found []string
	count := map[string]int{}
	for _, line := range prose(page) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || line[0] != '#' {
			continue
		}
		title = headingLink.ReplaceAllString(strings.TrimSpace(title), "$1")
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, title)
		if n := count[slug]; n > 0 {
			found = append(found, fmt.Sprintf("%s-%d", slug, n))
		} else {
			found = append(found, slug)
		}
		count[slug]++
	}
	return found
}

// checkLinks returns the relative links of all documents that lead nowhere: to a file that
// is not there, or to a section that a page does not have.
func checkLinks(t *testing.T, tree fs.FS) []string {
	t.Helper()
	read := func(name string) string {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var problems []string
	for _, name := range files(t, tree) {
		if path.Ext(name) != ".md" {
			continue
		}
		page := read(name)
		for i, line := range prose(page) {
			for _, m := range pageLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
				if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
					continue
				}
				file, section, _ := strings.Cut(m[1], "#")
				target := name
				if file != "" {
					target = path.Join(path.Dir(name), file)
				}
				if _, err := fs.Stat(tree, target); err != nil {
					problems = append(problems, fmt.Sprintf("%s:%d: there is no %s", name, i+1, target))
				} else if section != "" && (path.Ext(target) != ".md" || !slices.Contains(anchors(read(target)), section)) {
					problems = append(problems, fmt.Sprintf("%s:%d: %s has no section %s", name, i+1, target, section))
				}
			}
		}
	}
	return problems
}

func TestLinks(t *testing.T) {
	report(t, checkLinks(t, repository))
}

func TestLinkRule(t *testing.T) {
	bad := tree(map[string]string{
		"README.md": "[a](docs/a.md) [b](docs/a.md#the-first-part-of-x) [c](docs/b.md) [d](docs/a.md#other) [e](https://x.org/y) [f](#here)\n# Here\n" +
			"![i](pic.svg) `[g](no.md)`\n```sh\n[h](no.md)\n# Not here\n```\n[j](#not-here) [k](docs) [l](pic.svg#x)\n",
		"docs/a.md": "# The first part of `x`!\n## Twice\n## Twice\n[a](../README.md) [b](#twice-1) [c](#twice-2) [d](a.md#twice)\n## [With](a.md) link\n[e](#with-link)\n",
		"pic.svg":   "",
	})
	expect(t, checkLinks(t, bad),
		"README.md:1: there is no docs/b.md", "README.md:1: docs/a.md has no section other", "README.md:8: README.md has no section not-here",
		"README.md:8: pic.svg has no section x", "docs/a.md:4: docs/a.md has no section twice-2")
}
