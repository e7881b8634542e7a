package repocheck

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// update has the tests write what they would otherwise compare.
var update = flag.Bool("update", false, "write the generated parts of documents")

const (
	// contents is the table of contents: the order of its links is that of the chapters.
	contents = "docs/README.md"
	// The marks of generated parts: the footer of a chapter, which goes to its end, the list of
	// decisions in the contents, and the figure of the packages.
	footerMark    = "\n<!-- footer: go test ./internal/repocheck -run TestBook -update -->\n"
	decisionsMark = "<!-- decisions: go test ./internal/repocheck -run TestBook -update -->\n"
	endMark       = "<!-- end -->\n"
)

// betweenMarks replaces what is between a mark and the next end mark.
func betweenMarks(page, mark, text string) (string, error) {
	before, rest, found := strings.Cut(page, mark)
	_, after, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return "", fmt.Errorf("has no part between %q and %q", strings.TrimSpace(mark), strings.TrimSpace(endMark))
	}
	return before + mark + text + endMark + after, nil
}

// titleOf is the heading of a page.
func titleOf(page string) string {
	line, _, _ := strings.Cut(page, "\n")
	return strings.TrimPrefix(line, "# ")
}

// chapters returns the pages of the book in their order: the first link to each page beside
// the contents.
func chapters(contentsPage string) []string {
	var found []string
	for _, line := range prose(contentsPage) {
		for _, m := range pageLink.FindAllStringSubmatch(line, -1) {
			name, _, _ := strings.Cut(m[1], "#")
			if path.Ext(name) == ".md" && !strings.Contains(name, "/") && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

// book returns all generated pages as they should be, and what is wrong besides.
func book(t *testing.T, tree fs.FS) (pages map[string]string, problems []string) {
	t.Helper()
	have := map[string]string{}
	for _, name := range files(t, tree) {
		if strings.HasPrefix(name, "docs/") && path.Ext(name) == ".md" {
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				t.Fatal(err)
			}
			have[name] = string(text)
		}
	}
	order := chapters(have[contents])
	var decisionList strings.Builder
	for _, name := range slices.Sorted(maps.Keys(have)) {
		base := strings.TrimPrefix(name, "docs/")
		switch {
		case name == contents:
		case path.Dir(base) == "decisions":
			fmt.Fprintf(&decisionList, "- [%s](%s)\n", titleOf(have[name]), base)
		case !slices.Contains(order, base):
			problems = append(problems, fmt.Sprintf("%s: is not in the contents, %s", name, contents))
		}
	}
	pages = map[string]string{}
	if listed, err := betweenMarks(have[contents], decisionsMark, decisionList.String()); err != nil {
		problems = append(problems, fmt.Sprintf("%s: %v", contents, err))
	} else {
		pages[contents] = listed
	}
	for i, base := range order {
		page, ok := have["docs/"+base]
		if !ok {
			continue // a link that leads nowhere: TestLinks
		}
		var ways []string
		if i > 0 {
			ways = append(ways, fmt.Sprintf("[← %s](%s)", titleOf(have["docs/"+order[i-1]]), order[i-1]))
		}
		ways = append(ways, "[Contents](README.md)")
		if i+1 < len(order) {
			ways = append(ways, fmt.Sprintf("[%s →](%s)", titleOf(have["docs/"+order[i+1]]), order[i+1]))
		}
		body, _, _ := strings.Cut(page, footerMark)
		pages["docs/"+base] = strings.TrimRight(body, "\n") + "\n" + footerMark + "\n---\n" + strings.Join(ways, " · ") + "\n"
	}
	return pages, problems
}

// checkBook returns the chapters that are missing from the contents, or whose generated
// parts are not up to date.
func checkBook(t *testing.T, tree fs.FS, write func(name, text string)) []string {
	t.Helper()
	pages, problems := book(t, tree)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		text, err := fs.ReadFile(tree, name)
		switch {
		case err != nil:
			t.Fatal(err)
		case string(text) == pages[name]:
		case write != nil:
			write(name, pages[name])
		default:
			problems = append(problems, fmt.Sprintf("%s: the links to other chapters or decisions are not up to date: go test ./internal/repocheck -run TestBook -update", name))
		}
	}
	return problems
}

// writer returns what writes pages of the repository if the tests are to do so.
func writer(t *testing.T) func(name, text string) {
	if !*update {
		return nil
	}
	return func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join("../..", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBook(t *testing.T) {
	report(t, checkBook(t, repository, writer(t)))
}

func TestBookRule(t *testing.T) {
	index := "# Book\n[b](b.md#x) [a](a.md) [d](decisions/0001-x.md) [b](b.md)\n" + decisionsMark + "- [0001: X](decisions/0001-x.md)\n" + endMark
	good := map[string]string{
		contents:                   index,
		"docs/a.md":                "# A\ntext\n" + footerMark + "\n---\n[← B](b.md) · [Contents](README.md)\n",
		"docs/b.md":                "# B\n" + footerMark + "\n---\n[Contents](README.md) · [A →](a.md)\n",
		"docs/decisions/0001-x.md": "# 0001: X\n",
	}
	expect(t, checkBook(t, tree(good), nil))
	bad := maps.Clone(good)
	bad["docs/a.md"] = "# A\ntext\n"
	bad["docs/c.md"] = "# C\n"
	bad["docs/decisions/0002-y.md"] = "# 0002: Y\n"
	expect(t, checkBook(t, tree(bad), nil), "docs/c.md: is not in the contents", "docs/a.md: the links", contents+": the links")
	written := map[string]string{}
	expect(t, checkBook(t, tree(bad), func(name, text string) { written[name] = text }), "docs/c.md: is not in the contents")
	if written["docs/a.md"] != good["docs/a.md"] || len(written) != 2 {
		t.Errorf("wrote %q", written)
	}
	expect(t, checkBook(t, tree(map[string]string{contents: "# Book\n"}), nil), contents+": has no part")
}
