package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/bench/peers/internal/report"
	"github.com/rdmad/rdmad/bench/peers/internal/result"
	"github.com/rdmad/rdmad/bench/peers/internal/run"
)

// files returns the names in a directory.
func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// A page is replaced as a whole: plots that are not made anew do not stay. What is only a part does not take the
// place of a whole comparison.
func TestPageIsReplaced(t *testing.T) {
	dir := t.TempDir()
	write := func(part bool, cells ...*result.Cell) error {
		o, err := openOutput(&flags{plots: dir, json: filepath.Join(dir, "latest.json")}, part)
		if err != nil {
			return err
		}
		return errors.Join(o.write(&result.Results{Part: part, Cells: cells}), o.close())
	}
	for _, name := range report.PageFiles()[1:] {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(true); err != nil { // with nothing to plot
		t.Fatal(err)
	}
	if got := files(t, dir); got != "README.md latest.json" {
		t.Errorf("a part has left %s", got)
	}
	if err := write(false); err != nil {
		t.Fatal(err)
	}
	if err := write(true); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "RESULTS=") {
		t.Errorf("a part in place of all: %v", err)
	}
	if got := files(t, dir); got != "README.md latest.json" {
		t.Errorf("left: %s", got)
	}
}

// Where nothing can be written nothing is measured, and what was there stays until all that takes its place is written.
func TestOutputFailsEarly(t *testing.T) {
	nothingIsLeft(t)
	dir := t.TempDir()
	old := filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"--json /proc/no/x.json --plots " + dir, "--plots /proc/no --json " + old} {
		table, err := execute(t, append(strings.Fields(args), "--quick", "--rdmad", rdmad, "--systems", "unix", "--workloads", "call", "--settings", "free")...)
		if !errors.Is(err, os.ErrNotExist) || table != "" {
			t.Errorf("%s: %v, and printed %q", args, err, table)
		}
	}
	o, err := openOutput(&flags{json: old}, true)
	if err != nil {
		t.Fatal(err)
	}
	_ = o.newJSON.Close() // as a disk that is full
	if err := o.write(new(result.Results)); err == nil {
		t.Error("written to a closed file")
	}
	_ = o.close()
	if text, err := os.ReadFile(old); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
	if got := files(t, dir); got != "old.json" {
		t.Errorf("left: %s", got)
	}
}

// What was measured before an interrupt is not thrown away.
func TestResultsUntilInterrupt(t *testing.T) {
	o := options(t, "unix")
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	o.Progress = func(format string, args ...any) {
		if strings.HasPrefix(format, "%s: round") && args[1] == 2 {
			cancel()
		}
	}
	r, err := run.Run(ctx, o)
	if err == nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	if c := r.Find("free", "call", "unix"); c == nil || c.Samples[0] == nil || c.Samples[1] != nil {
		t.Errorf("%+v", c)
	}
	var table strings.Builder
	if err := report.Table(&table, r); err != nil || !strings.Contains(table.String(), "unix") {
		t.Errorf("%v\n%s", err, table.String())
	}
}
