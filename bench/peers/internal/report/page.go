package report

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdmad/rdmad/bench/peers/internal/result"
)

const (
	pageFile = "README.md"
	// partNote is on pages of which partial comparisons are.
	partNote = "Only a part of what `make bench-peers` measures.\n\n"
)

// PageFiles returns the names of all files that a page may consist of.
func PageFiles() []string {
	files := []string{pageFile}
	for _, s := range settings {
		for _, p := range plots {
			files = append(files, plotFile(p.name, s))
		}
	}
	return files
}

// IsWhole reports whether a directory has the page of a whole comparison.
func IsWhole(dir string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(dir, pageFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return !strings.Contains(string(text), partNote), err
}

// Page writes the plots into a directory, and README.md, which shows them and the tables.
func Page(dir string, r *result.Results) error {
	files, err := Plots(dir, r)
	if err != nil {
		return err
	}
	var tables strings.Builder
	if err := Table(&tables, r); err != nil {
		return err
	}
	if err := TargetTable(&tables, r); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# rdmad and other systems, measured\n\n" +
		"Written by `make bench-peers`; do not edit. [docs/performance.md](../../docs/performance.md#against-other-systems) says what was measured, and\n" +
		"what the columns mean. `latest.json` has every sample.\n\n")
	if r.Part {
		b.WriteString(partNote)
	}
	for _, name := range files {
		fmt.Fprintf(&b, "![%s](%s)\n", strings.TrimSuffix(name, ".svg"), name)
	}
	b.WriteString("\n```\n")
	for line := range strings.Lines(tables.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	b.WriteString("```\n")
	return os.WriteFile(filepath.Join(dir, pageFile), []byte(b.String()), 0o644)
}
