package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/status"
	"github.com/rdmad/rdmad/internal/version"
)

// The program before a failed upgrade has all the time that it takes to start, however little that of the upgrade has: it
// is what keeps the workers.
func TestUndoTakesItsTime(t *testing.T) {
	s := scripted(t, "", "case \"$*\" in\n*--probe*) echo {}; exit ;;\nesac\nexec sleep 600")
	s.setup.ReadyLimit = time.Millisecond
	exe := s.exe
	var err error
	if s.core, err = s.startCore(exe); err != nil {
		t.Fatal(err)
	}
	s.core.known = true
	before := s.core
	s.upgrade(t.Context(), true)
	after := s.core
	defer after.end(syscall.SIGKILL, time.Minute)
	select {
	case <-after.ended:
		t.Fatalf("the core of the program before was ended: %v", after.err)
	default:
	}
	if after == before || after.known || s.upgraded.Result != status.UpgradeUndone || s.exe != exe {
		t.Errorf("%+v, %+v", after, s.upgraded)
	}
	s.served()
	if s.upgraded.PauseMS < 1 {
		t.Errorf("%v ms without a core, and one took 1 ms to be given up", s.upgraded.PauseMS)
	}
}

// A new core that ends as if all were well has not started either.
func TestNewCoreEnds(t *testing.T) {
	s := scripted(t, "", "case \"$*\" in\n*--probe*) echo {} ;;\nesac")
	var err error
	if s.core, err = s.startCore(s.exe); err != nil {
		t.Fatal(err)
	}
	s.core.known = true
	s.upgrade(t.Context(), true)
	s.core.end(syscall.SIGKILL, time.Minute)
	if u := s.upgraded; u.Result != status.UpgradeUndone || u.Reason != "the new core did not start: it ended with status 0" {
		t.Errorf("%+v", *u)
	}
}

// A new core that is ready has been that also if it has ended, or its time is over, by the time that anybody looks.
func TestNewCoreThatHasServed(t *testing.T) {
	for _, ended := range []bool{true, false} {
		for range 20 {
			s := scripted(t, "", "")
			s.setup.ReadyLimit = 1
			s.core = &runningCore{link: asCore(t, s, (*depot.Client).Ready), ended: make(chan struct{})}
			if ended {
				close(s.core.ended)
			}
			if err := s.awaitSuccessor(t.Context()); err != nil || !s.core.known {
				t.Fatalf("ended: %v: %v, known to have served: %v", ended, err, s.core.known)
			}
		}
	}
}

// One that is ready and ends at once has replaced the core, and is started again as after any death.
func TestNewCoreServesAndEnds(t *testing.T) {
	dir := t.TempDir()
	s := scripted(t, "", `case "$*" in *--probe*) echo {}; exit ;; esac
mkdir `+dir+`/1 2>/dev/null && exec sleep 600
`+saysReady)
	exe := s.exe
	var err error
	if s.core, err = s.startCore(exe); err != nil {
		t.Fatal(err)
	}
	await(t, dir+"/1")
	s.core.known = true
	s.upgrade(t.Context(), true)
	if s.upgraded.Result != status.UpgradeDone || s.exe == exe || !s.core.known {
		t.Errorf("%+v, %+v", *s.upgraded, s.core)
	}
	if err := s.follow(t.Context()); err != nil {
		t.Error(err)
	}
	s.exe.close()
}

// await waits for a file.
func await(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s does not come", path)
}

// keepVersions leaves in the depot what a core of these versions does.
func keepVersions(t *testing.T, s *supervisor, v version.Set) {
	t.Helper()
	asCore(t, s, func(core *depot.Client) error { return core.Put(handoff.NodeKey, handoff.Node{Versions: v}) })
}

// A new core that has made what is kept its own is started again if the program before could not go on with that, and the program before
// if it could.
func TestUndoOnlyToWhatCanGoOn(t *testing.T) {
	for _, newer := range []uint32{0, 1} {
		before, dir := version.Own(), t.TempDir()
		after := before
		after.ABI += newer
		said, err := json.Marshal(after)
		if err != nil {
			t.Fatal(err)
		}
		s := scripted(t, "", fmt.Sprintf(`case "$*" in *--probe*) echo '%s'; exit ;; esac
cd %s
mkdir 1 2>/dev/null && exec sleep 600
if mkdir 2 2>/dev/null; then
	`+readsKept+`
	printf '{"op":"put","key":"%s","meta":{"versions":%s}}' >&6
	exit 3
fi
mkdir 3
exec sleep 600`, said, dir, handoff.NodeKey, said))
		exe, path := s.exe, s.exe.path
		keepVersions(t, s, before)
		if s.core, err = s.startCore(exe); err != nil {
			t.Fatal(err)
		}
		await(t, dir+"/1")
		s.core.known = true
		last := s.core
		s.upgrade(t.Context(), true)
		await(t, dir+"/3")
		s.core.end(syscall.SIGKILL, time.Minute)
		result, stays := status.UpgradeUndone, true
		if newer > 0 {
			result, stays = status.UpgradeDone, false
		}
		if u := s.upgraded; u.Result != result || (s.exe == exe) != stays || s.exe.path != path || s.core == last || s.core.known {
			t.Errorf("%d newer: %+v, the program before: %v, core %+v", newer, *u, s.exe == exe, s.core)
		}
		s.served()
		if s.upgraded.PauseMS <= 0 {
			t.Errorf("%v ms without a core", s.upgraded.PauseMS)
		}
		if !stays {
			s.exe.close()
		}
	}
}

func TestOutgrown(t *testing.T) {
	own := version.Own()
	older := own
	older.ABI--
	for name, c := range map[string]struct {
		from, now version.Set
		outgrown  bool
	}{
		"the same":                    {own, own, false},
		"not the new one's own yet":   {older, older, false},
		"the new one's own":           {older, own, true},
		"the program before is newer": {own, older, false},
		"nothing was kept":            {version.Set{}, own, false},
		"nothing is kept":             {own, version.Set{}, false},
	} {
		s := scripted(t, "", "")
		s.upgraded = &status.Upgrade{From: c.from}
		if c.now != (version.Set{}) {
			keepVersions(t, s, c.now)
		}
		if err := s.outgrown(); (err != nil) != c.outgrown {
			t.Errorf("%s: %v", name, err)
		}
	}
}
