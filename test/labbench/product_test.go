package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A sandbox that fails tells why by the ends of its logs.
func TestLogsOfAFailedSandbox(t *testing.T) {
	program := filepath.Join(t.TempDir(), "rdmad")
	// Stands for "rdmad sandbox --keep", which leaves its directory in $TMPDIR.
	script := "#!/bin/sh\nmkdir $TMPDIR/rdmad-sandbox-1 && seq 1 100 >$TMPDIR/rdmad-sandbox-1/a.log && echo why >$TMPDIR/rdmad-sandbox-1/b.log\necho no; exit 3\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	err := newFigures().measure(t.Context(), &options{rdmad: program, duration: time.Second}, settings[0])
	if err == nil {
		t.Fatal("it has not failed")
	}
	for _, want := range []string{"exit status 3\nno\n", "end of a.log", "\n99\n100\n", "end of b.log\nwhy\n"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "\n50\n") {
		t.Errorf("the whole log: %v", err)
	}
}

// Where a tool had no figure there is nothing to be compared with.
func TestNoRatioToNothing(t *testing.T) {
	for _, r := range []Result{{Workload: "call", Size: 64, Clients: 1, Depth: 1, P50US: 5}, {Workload: "call", Size: 64, Clients: 8, Depth: 8, Rate: 5}} {
		r.compare([]RawResult{{Tool: "ib_write_lat", Size: 64}, {Tool: "ib_write_bw", Size: 64}})
		if r.Ratio != 0 || r.Against != "" {
			t.Errorf("%+v", r)
		}
	}
}
