package supervisor

import (
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/status"
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
