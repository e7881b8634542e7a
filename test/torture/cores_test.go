package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Each end of a core that the harness has not brought about is counted, also one of those that follow a core that it has killed.
func TestCoreWatch(t *testing.T) {
	for what, c := range map[string]struct {
		kills       int
		replaced    bool
		pid, deaths int
		want        int
	}{
		"nothing":                      {pid: 10, deaths: 2},
		"a crash":                      {pid: 11, deaths: 3, want: 1},
		"a crash, not seen yet":        {pid: 10, deaths: 3, want: 1},
		"another core, without a word": {pid: 11, deaths: 2, want: 1},
		"killed":                       {kills: 1, pid: 11, deaths: 3},
		"killed, and the next crashed": {kills: 1, pid: 12, deaths: 4, want: 1},
		"killed, and still there":      {kills: 1, pid: 10, deaths: 2},
		"replaced":                     {replaced: true, pid: 11, deaths: 2},
		"replaced, and crashed":        {replaced: true, pid: 12, deaths: 3, want: 1},
	} {
		w := coreWatch{pid: 10, deaths: 2, kills: c.kills, replaced: c.replaced}
		if got := w.look(c.pid, c.deaths); got != c.want {
			t.Errorf("%s: %d crashes, want %d", what, got, c.want)
		}
		if w.pid != c.pid || w.deaths != c.deaths {
			t.Errorf("%s: it is taken for %+v", what, w)
		}
		if got := w.look(c.pid, c.deaths); got != 0 {
			t.Errorf("%s: %d crashes are seen twice", what, got)
		}
	}
	late := coreWatch{pid: 10, kills: 1}
	if late.look(10, 0) != 0 || late.look(11, 1) != 0 || late.look(12, 2) != 1 {
		t.Error("a death that was late is taken for a crash, or excuses two")
	}
}

// A fault allows what it has done to one node, and nothing of the other.
func TestKillsAreOfOneNode(t *testing.T) {
	r := &run{cores: [2]coreWatch{{pid: 10}, {pid: 20}}}
	r.killing(&node{name: "b"})
	if r.cores[0].look(11, 1) != 1 || r.cores[1].look(21, 1) != 0 {
		t.Errorf("%+v", r.cores)
	}
}

// Deaths are counted once, by whole lines.
func TestDeaths(t *testing.T) {
	n := &node{log: filepath.Join(t.TempDir(), "a.log")}
	if _, err := n.deaths(); err == nil {
		t.Error("no log is as good as one")
	}
	f, err := os.Create(n.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		text string
		want int
	}{
		{`{"level":"error","code":"core-died","message":"the core died"}` + "\n" + `{"level":"warn","code":"co`, 1},
		{`re-died"}` + "\n", 2},
		{"rdmad: core-died\n", 2},
		{"", 2},
	} {
		if _, err := f.WriteString(c.text); err != nil {
			t.Fatal(err)
		}
		if got, err := n.deaths(); err != nil || got != c.want {
			t.Errorf("after %q: %d, %v, want %d", c.text, got, err, c.want)
		}
	}
}
