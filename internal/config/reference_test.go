package config

import (
	"slices"
	"strings"
	"testing"
)

// The reference has what the example has, and keys have a default or are required.
func TestReference(t *testing.T) {
	example := Example()
	keys := 0
	for _, s := range Reference() {
		table := "[" + s.Name + "]\n"
		if s.List {
			table = "[" + table[:len(table)-1] + "]\n"
		}
		if !strings.Contains(example, table) || s.Doc == "" || len(s.Keys) == 0 {
			t.Errorf("section %+v", s)
		}
		for _, k := range s.Keys {
			keys++
			if !strings.Contains(example, k.Name+" = ") || k.Doc == "" || k.Allowed == "" || (k.Default == "") != strings.Contains(example, k.Name+" = <required>") && !s.List {
				t.Errorf("%s.%s: %+v", s.Name, k.Name, k)
			}
		}
	}
	if keys < 40 {
		t.Errorf("%d keys", keys)
	}
	docs := Reference()
	i := slices.IndexFunc(docs, func(d SectionDoc) bool { return d.Name == "peer" })
	if i < 0 || !docs[i].List || docs[i].Keys[0].Default != "" {
		t.Errorf("the section peer: %+v", docs)
	}
}
