package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/rdmad/rdmad/internal/nodecert"
)

// With --json there is a list of what was read, and nothing if that is nothing: an empty list looks like success.
func TestCertsShowJSON(t *testing.T) {
	f := newFixture(t)
	made, err := nodecert.Make(nodecert.Plan{Dir: filepath.Join(f.dir, "certs"), Nodes: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	files := made.Nodes[0].Files
	for _, c := range []struct {
		args   string
		status int
		shown  int
		words  []string
	}{
		{f.dir + "/none.pem", exitFailure, 0, []string{"none.pem", "no such file"}},
		{f.dir, exitFailure, 0, []string{"is a directory"}},
		{"CONFIG", exitFailure, 0, []string{"no certificate in PEM"}},
		{files.Key, exitFailure, 0, []string{"a private key, no certificate"}},
		{files.Cert + " " + files.Key, 0, 1, nil},
		{files.Cert + " " + f.dir + "/none.pem", exitFailure, 1, []string{"none.pem", "no such file"}},
	} {
		r := f.run("rdmad certs show", "--json "+c.args)
		if c.status != 0 {
			r.oneLine(c.status, c.words...)
		} else if r.Status != 0 || r.stderr != "" {
			t.Errorf("%s: status %d: %s", r.line, r.Status, r.stderr)
		}
		if c.shown == 0 {
			if r.Stdout != "" {
				t.Errorf("%s: it has failed, and has written:\n%s", r.line, r.Stdout)
			}
			continue
		}
		var list []nodecert.Info
		if err := json.Unmarshal([]byte(r.Stdout), &list); err != nil || len(list) != c.shown {
			t.Errorf("%s: %v, want %d certificates:\n%s", r.line, err, c.shown, r.Stdout)
		}
	}
}
