package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/nodelog"
	"github.com/rdmad/rdmad/internal/status"
)

// atStart are the files of a core that read keys which a reload applies from the configuration that
// they were started with, which is right where apply sets them anew. The supervisor's configuration is
// always the one in force.
var atStart = map[string]string{
	"conductor.go":          "newConductor starts agents with them",
	"liveconfig.go":         "apply is given the one that is to be in force",
	"../agent/rest.go":      "apply sets what agents do when there is nothing to do",
	"../nodelog/nodelog.go": "apply sets the level",
}

// read finds reads of keys from a configuration that is called cfg.
var read = regexp.MustCompile(`\bcfg\.([A-Z][A-Za-z]*)\.([A-Z][A-Za-z]*)\b`)

// A key that a reload applies is read from the configuration in force.
func TestLiveKeysAreReadLive(t *testing.T) {
	live := map[string]bool{}
	for _, v := range (&config.Loaded{Config: config.Default()}).Values() {
		if strings.HasPrefix(v.Applies, "live") && !strings.Contains(v.Path, "[") {
			live[strings.ToLower(strings.ReplaceAll(v.Path, "_", ""))] = true
		}
	}
	if len(live) < 15 {
		t.Fatalf("live keys: %v", live)
	}
	exempt := 0
	for _, dir := range []string{".", "../agent", "../nodelog"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, m := range read.FindAllStringSubmatch(string(text), -1) {
				if live[strings.ToLower(m[1]+"."+m[2])] {
					found = append(found, m[0])
				}
			}
			switch why := atStart[name]; {
			case why != "":
				exempt++
			case len(found) > 0:
				t.Errorf("%s reads %q, which a reload applies: use live()", name, found)
			}
		}
	}
	if exempt != len(atStart) {
		t.Errorf("%d files of %d that may read such keys are there", exempt, len(atStart))
	}
}

// Links of peers that are not configured any more are kept for when these come back, but not for good: a fleet may never
// use a name twice.
func TestFormerLinksAreForgotten(t *testing.T) {
	c := &conductor{changed: make(chan struct{}), links: map[string]*link{}, formerLinks: map[string]*link{}}
	peers := func(names ...string) *config.Config {
		cfg := &config.Config{}
		for _, n := range names {
			cfg.Peers = append(cfg.Peers, config.Peer{Name: n})
		}
		return cfg
	}
	for _, n := range []string{"idle", "busy", "new", "stays"} {
		c.links[n] = newLink(c, config.Peer{Name: n})
		defer c.links[n].cancel()
	}
	c.applyPeers(peers("idle", "busy", "new", "stays"), peers("new", "stays"))
	for _, n := range []string{"idle", "busy"} {
		l := c.formerLinks[n]
		if l == nil {
			t.Fatalf("the link of %s is forgotten at once", n)
		}
		l.removed = l.removed.Add(-2 * formerLinkLife)
	}
	c.formerLinks["busy"].holding = &session{}
	c.applyPeers(peers("new", "stays"), peers("stays"))
	for n, want := range map[string]bool{"idle": false, "busy": true, "new": true, "stays": false} {
		if got := c.formerLinks[n] != nil; got != want {
			t.Errorf("the former link of %s is there: %v", n, got)
		}
	}
}

// A reload is in force by the digest that its supervisor has of it, which may be of a release with other keys than the core's.
func TestReloadOfAnotherRelease(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n")
	c, err := newConductor(cfg, 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	c.told, c.events = handoff.NewBriefing("test", nil), nodelog.New(cfg, os.Stderr, "core")
	c.spawn(c.applyReloads)
	tell := func(n handoff.Note) {
		t.Helper()
		data, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		c.told.Take(data)
	}
	if s := c.configStatus(); s.SupervisorDigest != s.Digest {
		t.Errorf("at first the digest is %s, and the supervisor's %s", s.Digest, s.SupervisorDigest)
	}
	next := *cfg
	for n, workers := range []int{10, 10, 20} { // the second time what has changed is a key that this core does not have
		next.Limits.Workers = workers
		digest := ""
		for _, p := range handoff.PartsOf(&next) {
			if p.Last {
				digest = fmt.Sprint("another release's ", n)
				p.Digest = digest
			}
			tell(handoff.Note{Part: p})
		}
		tell(handoff.Note{Reload: &status.Reload{Number: n + 1, Result: status.ReloadDone, Digest: digest}})
		eventually(t, "the reload is in force", func() error {
			s := c.configStatus()
			if s.SupervisorDigest != s.Reload.Digest || s.Digest != next.Digest() || c.live().Limits.Workers != workers {
				return fmt.Errorf("digest %s, the supervisor's %s, after a reload of %s", s.Digest, s.SupervisorDigest, s.Reload.Digest)
			}
			return nil
		})
	}
	parts := handoff.PartsOf(&next)
	parts[len(parts)-1].Digest = "" // a supervisor of an older release
	for _, p := range parts {
		tell(handoff.Note{Part: p})
	}
	eventually(t, "the digest is the core's own", func() error {
		if s := c.configStatus(); s.SupervisorDigest != next.Digest() {
			return errors.New(s.SupervisorDigest)
		}
		return nil
	})
}
