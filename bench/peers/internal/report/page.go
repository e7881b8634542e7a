package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdmad/rdmad/bench/peers/internal/result"
)

// Page writes the plots into a directory, and README.md, which shows them and the tables.
func Page(dir string, r *result.Results) error {
	plots, err := Plots(dir, r)
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
	for _, name := range plots {
		fmt.Fprintf(&b, "![%s](%s)\n", strings.TrimSuffix(name, ".svg"), name)
	}
	b.WriteString("\n```\n")
	for line := range strings.Lines(tables.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	b.WriteString("```\n")
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(b.String()), 0o644)
}
