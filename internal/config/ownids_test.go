package config

import (
	"slices"
	"strings"
	"testing"
)

// What the supervisor has looked up is the core's, whatever has become of the machine's users since: this machine has
// none of these.
func TestOwnNeedsNoUsers(t *testing.T) {
	c := mustParse(t, "[[domain]]\nname = \"d\"\nusers = [\"alice\", \"bob\"]\ngroups = [\"dba\"]\n[[domain]]\nname = \"e\"\nusers = [\"12345\"]\n")
	if _, err := ParseOwn("test.toml", c.TOML()); err == nil || !strings.Contains(err.Error(), "alice") {
		t.Fatalf("what is to be looked up: %v", err)
	}
	own, err := ParseOwn("test.toml", c.Own())
	if err != nil {
		t.Fatalf("the next core cannot start: %v", err)
	}
	for i, d := range own.Domains {
		if !slices.Equal(d.UIDs, c.Domains[i].UIDs) || !slices.Equal(d.GIDs, c.Domains[i].GIDs) {
			t.Errorf("%+v, the supervisor has %+v", d, c.Domains[i])
		}
	}
	if own.Digest() != c.Digest() {
		t.Errorf("the digest is %s, the supervisor's %s", own.Digest(), c.Digest())
	}
	merged, _, err := Merge(c, mustParse(t, "[[domain]]\nname = \"d\"\nusers = [\"bob\"]\n[[domain]]\nname = \"e\"\nusers = [\"12345\"]\n"))
	if err != nil {
		t.Fatalf("a reload: %v", err)
	}
	if d := merged.Domains[0]; len(d.UIDs) != 1 || !slices.Equal(d.Users, []string{"bob"}) || len(d.GIDs) != 0 {
		t.Errorf("after a reload that leaves bob alone: %+v", d)
	}
}

// A name that is another number now is a change: other processes are admitted. A domain that names nobody admits who runs the
// daemon, who is not the one that compares.
func TestOtherNumbersOfTheSameNames(t *testing.T) {
	const doc = "[[domain]]\nname = \"d\"\nusers = [\"alice\"]\ngroups = [\"dba\"]\n"
	now := fakeSystem()
	now.uid++
	now.user = func(string) (uint32, error) { return 7300, nil }
	now.group = func(string) (uint32, error) { return 7401, nil }
	wanted, errs := parse("test.toml", []byte(doc), now)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	old := mustParse(t, doc)
	merged, changes, err := Merge(old, wanted)
	if err != nil || len(changes) != 2 || changes[0].Path != "domain[d].uids" || changes[1].Path != "domain[d].gids" || !changes[0].Live || !changes[1].Live {
		t.Errorf("changes %+v, %v", changes, err)
	}
	if merged.Digest() != wanted.Digest() {
		t.Error("the merged configuration has other numbers than the wanted one")
	}
	alone, errs := parse("test.toml", nil, now)
	if changes := Compare(mustParse(t, ""), alone); len(errs) > 0 || len(changes) > 0 {
		t.Errorf("a domain that names nobody: %+v, %v", changes, errs)
	}
}
