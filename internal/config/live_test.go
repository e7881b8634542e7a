package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// Every key has a decision whether a reload applies it, and there is none too many.
func TestEveryKeyIsLiveOrNot(t *testing.T) {
	keys := map[string]bool{}
	for _, s := range sections {
		for _, k := range s.keys {
			keys[s.name+"."+k.name] = true
			if _, ok := applies[s.name+"."+k.name]; !ok {
				t.Errorf("%s.%s: say in applies (live.go) whether a reload applies it; if it does, make the daemon do so", s.name, k.name)
			}
		}
	}
	for name, how := range applies {
		if !keys[name] {
			t.Errorf("applies has %s, which is no key", name)
		}
		if !how.Live && how.Scope != "" {
			t.Errorf("%s: a restart has no scope", name)
		}
	}
}

// parsed parses a configuration that is right.
func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("x.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const oneNode = "[node]\nname=\"a\"\nlisten=\":1\"\n"

// What is live is taken, what is not stays, and both are told.
func TestMerge(t *testing.T) {
	old := parsed(t, oneNode+"[[peer]]\nname=\"b\"\naddress=\"b:1\"\n[[peer]]\nname=\"c\"\naddress=\"c:1\"\n[[domain]]\nname=\"d\"\nusers=[1]\n")
	wanted := parsed(t, oneNode+"drain_timeout=\"3s\"\n[agent]\ncount=2\n[limits]\nworkers=7\nservices=5\n[log]\nlevel=\"debug\"\n"+
		"[[peer]]\nname=\"b\"\naddress=\"b:2\"\n[[peer]]\nname=\"e\"\naddress=\"e:1\"\n[[domain]]\nname=\"d\"\nusers=[2]\n[[domain]]\nname=\"new\"\nusers=[3]\n")
	before := old.Digest()
	merged, changes, err := Merge(old, wanted)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, c := range changes {
		got[c.Path] = c.Live
	}
	want := map[string]bool{
		"node.drain_timeout": true, "agent.count": false, "limits.workers": true, "limits.services": false, "log.level": true,
		"peer[b].address": true, "peer[c]": true, "peer[e]": true, "domain[d].users": true, "domain[new]": false,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("changes %v, want %v", got, want)
	}
	if merged.Limits.Workers != 7 || merged.Limits.Services != 4096 || merged.Agent.Count != 1 || merged.Log.Level != "debug" {
		t.Errorf("merged: %+v", merged)
	}
	if !reflect.DeepEqual(merged.Peers, wanted.Peers) || len(merged.Domains) != 1 || !reflect.DeepEqual(merged.Domains[0].UIDs, []uint32{2}) {
		t.Errorf("merged: %+v %+v", merged.Peers, merged.Domains)
	}
	if old.Digest() != before {
		t.Error("the running configuration was changed")
	}
	// What is left is what needs a restart, and nothing else is left of the merge.
	for _, c := range Compare(merged, wanted) {
		if c.Live {
			t.Errorf("still different: %+v", c)
		}
	}
	if again, changes, err := Merge(old, old); err != nil || len(changes) != 0 || again.Digest() != before {
		t.Errorf("nothing changes: %v, %v", changes, err)
	}
}

// A node without peers gets its first by a restart, and the last can go without one.
func TestMergeOfFirstPeer(t *testing.T) {
	alone, pair := parsed(t, oneNode), parsed(t, oneNode+"[[peer]]\nname=\"b\"\naddress=\"b:1\"\n")
	merged, changes, err := Merge(alone, pair)
	if err != nil || len(merged.Peers) != 0 || len(changes) != 1 || changes[0].Live {
		t.Errorf("first peer: %v %v %v", merged, changes, err)
	}
	if text := changes[0].Applies().String(); !strings.HasPrefix(text, "restart: a node without peers") {
		t.Errorf("first peer: %q does not say why", text)
	}
	merged, changes, err = Merge(pair, alone)
	if err != nil || len(merged.Peers) != 0 || len(changes) != 1 || !changes[0].Live {
		t.Errorf("last peer: %v %v %v", merged, changes, err)
	}
}

// What is live and what is not can be right in the file and wrong together.
func TestMergeRefuses(t *testing.T) {
	old := parsed(t, "[[domain]]\nname=\"x\"\nusers=[1]\n[[domain]]\nname=\"y\"\nusers=[2]\n")
	wanted := parsed(t, "[[domain]]\nname=\"x\"\nusers=[1,2]\n")
	if _, _, err := Merge(old, wanted); !errors.Is(err, ErrTogether) {
		t.Errorf("got %v", err)
	}
}
