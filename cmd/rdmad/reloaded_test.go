package main

import (
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/status"
)

// A reload is over when the core has what it has put in force, which supervisor and core know by digests of their own if they are of
// different releases.
func TestReloadedSince(t *testing.T) {
	then := time.Now()
	over := reloadedSince(&status.Node{Config: &status.Config{Reload: &status.Reload{Number: 1}}}, then)
	for name, c := range map[string]struct {
		config status.Config
		want   bool
	}{
		"in force":                {status.Config{Digest: "a", SupervisorDigest: "a", Reload: &status.Reload{Number: 2, At: then, Digest: "a"}}, true},
		"another release":         {status.Config{Digest: "b", SupervisorDigest: "a", Reload: &status.Reload{Number: 2, At: then, Digest: "a"}}, true},
		"an older core":           {status.Config{Digest: "a", Reload: &status.Reload{Number: 2, At: then, Digest: "a"}}, true},
		"not in force yet":        {status.Config{Digest: "a", SupervisorDigest: "c", Reload: &status.Reload{Number: 2, At: then, Digest: "a"}}, false},
		"the one before":          {status.Config{Digest: "a", SupervisorDigest: "a", Reload: &status.Reload{Number: 1, At: then, Digest: "a"}}, false},
		"one that was under way":  {status.Config{Digest: "a", SupervisorDigest: "a", Reload: &status.Reload{Number: 2, At: then.Add(-1), Digest: "a"}}, false},
		"no reload since a start": {status.Config{Digest: "a", SupervisorDigest: "a"}, false},
	} {
		if got := over(&status.Node{Config: &c.config}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
