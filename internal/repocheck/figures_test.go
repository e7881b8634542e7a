package repocheck

import (
	"fmt"
	"io/fs"
	"maps"
	"strconv"
	"strings"
	"testing"
)

const (
	// results is the page of the comparison with other systems, of which the README tells a few figures.
	results     = "bench/results/README.md"
	readme      = "README.md"
	figuresMark = "<!-- figures: go test ./internal/repocheck -run TestFigures -update -->\n"
)

// figureSystems are the columns of the README's table: a system's name in the results, and what people call it.
var figureSystems = [][2]string{{"rdmad", "rdmad"}, {"grpc", "gRPC"}, {"nats", "NATS"}, {"tcp-coalesced", "raw TCP, grouped writes"}}

// figureRows are its rows: a workload, what it is, and which columns of the results it tells.
var figureRows = []struct{ workload, what, tells string }{
	{"call", "1 process, 1 call at a time", "RATE calls/s, P50 us"},
	{"callers", "8 processes, 1 call at a time each", "RATE calls/s, P50 us"},
	{"storm-64", "8 processes, 64 outstanding each", "RATE calls/s"},
	{"storm-64", "... processor time of all processes, per million calls", "CPU s"},
	{"pages-64", "8 processes, 8 outstanding each, answers of 8 KiB", "RATE calls/s"},
}

// measured are the values of one system under one workload, as the results print them.
type measured struct{ rate, p50, cpu string }

// thousands makes a whole number easier to read.
func thousands(number string) string {
	if _, err := strconv.ParseUint(number, 10, 64); err != nil {
		return number
	}
	for i := len(number) - 3; i > 0; i -= 3 {
		number = number[:i] + "," + number[i:]
	}
	return number
}

// figuresOf reads the results of the setting "free", by workload and system, and on what machine they were measured.
func figuresOf(page string) (machine string, found map[[2]string]measured) {
	found = make(map[[2]string]measured)
	_, page, _ = strings.Cut(page, "```\n")
	machine, page, _ = strings.Cut(page, "\n")
	machine, _, _ = strings.Cut(machine, ", load average")
	_, page, _ = strings.Cut(page, "\nfree:")
	page, _, _ = strings.Cut(page, "\npinned:")
	workload := ""
	for line := range strings.Lines(page) {
		if name, _, ok := strings.Cut(line, ": "); ok && line[0] != ' ' && !strings.Contains(name, " ") {
			workload = name
		} else if f := strings.Fields(line); len(f) > 8 && f[0] != "system" {
			found[[2]string{workload, f[0]}] = measured{thousands(f[1]), f[4], f[8]}
		}
	}
	return machine, found
}

// figures returns the README's table of some figures, and which are not in the results.
func figures(page string) (table string, problems []string) {
	machine, found := figuresOf(page)
	var b strings.Builder
	b.WriteString("| 64 B echo over TCP, medians |")
	for _, s := range figureSystems {
		b.WriteString(" " + s[1] + " |")
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(figureSystems)) + "|\n")
	for _, row := range figureRows {
		b.WriteString("| " + row.what + " |")
		for _, s := range figureSystems {
			m, ok := found[[2]string{row.workload, s[0]}]
			if !ok {
				problems = append(problems, fmt.Sprintf("%s: has no %s of %s", results, row.workload, s[0]))
			}
			b.WriteString(" " + strings.NewReplacer("RATE", m.rate, "P50", m.p50, "CPU", m.cpu).Replace(row.tells) + " |")
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\nBoth nodes, and all processes, are on one machine: %s.\n", machine)
	return b.String(), problems
}

// checkFigures returns what is wrong with the README's figures.
func checkFigures(t *testing.T, tree fs.FS, write func(name, text string)) []string {
	t.Helper()
	read := func(name string) string {
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	table, problems := figures(read(results))
	have := read(readme)
	want, err := betweenMarks(have, figuresMark, table)
	switch {
	case err != nil:
		problems = append(problems, fmt.Sprintf("%s: %v", readme, err))
	case len(problems) > 0 || have == want:
	case write != nil:
		write(readme, want)
	default:
		problems = append(problems, readme+": its figures are not those of "+results+": go test ./internal/repocheck -run TestFigures -update")
	}
	return problems
}

func TestFigures(t *testing.T) {
	report(t, checkFigures(t, repository, writer(t)))
}

func TestFiguresRule(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Results\n\n```\nSome CPU, 2 CPUs, revision abc, load average before 1\n5 rounds: medians\n\nfree: all processors\n")
	for _, workload := range []string{"call", "callers", "storm-64", "pages-64"} {
		page.WriteString("\n" + workload + ": 64 B echo\n system 1/s quartiles MB/s p50 us p90 p99 p99.9 CPU s/million\n")
		for _, s := range figureSystems {
			page.WriteString("  " + s[0] + " 1234567 1-2 3.5 35.8 67.6 128.1 255.9 85.04 1.0\n")
		}
	}
	page.WriteString("\npinned: one\n\ncall: 64 B echo\n  rdmad 1 1-2 1 1 1 1 1 1\n```\n")
	good := map[string]string{results: page.String(), readme: "# X\n" + figuresMark + endMark + "text\n"}
	written := ""
	expect(t, checkFigures(t, tree(good), func(_, text string) { written = text }))
	for _, want := range []string{"| 1 process, 1 call at a time | 1,234,567 calls/s, 35.8 us |", "| 85.04 s |", "machine: Some CPU, 2 CPUs, revision abc.\n" + endMark + "text"} {
		if !strings.Contains(written, want) {
			t.Errorf("no %q in %s", want, written)
		}
	}
	expect(t, checkFigures(t, tree(good), nil), readme+": its figures")
	bad := maps.Clone(good)
	bad[results] = strings.ReplaceAll(good[results], "nats", "tans")
	expect(t, checkFigures(t, tree(bad), nil), results+": has no call of nats", results+": has no callers of nats", results+": has no storm-64 of nats",
		results+": has no storm-64 of nats", results+": has no pages-64 of nats")
	bad = maps.Clone(good)
	bad[readme] = "# X\n"
	expect(t, checkFigures(t, tree(bad), nil), readme+": has no part")
}
