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
