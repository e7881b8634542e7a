package supervisor

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/status"
)

// The program before a failed upgrade has all the time that it takes to start, however little that of the upgrade has: it
// is what keeps the workers.
func TestUndoTakesItsTime(t *testing.T) {
	program := filepath.Join(t.TempDir(), "core")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ncase \"$*\" in\n*--probe*) echo {}; exit ;;\nesac\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	exe, err := openExecutable(program, program)
	if err != nil {
		t.Fatal(err)
	}
	defer exe.close()
	socket, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	s := &supervisor{
		cfg: configOf(t, ""), log: zerolog.Nop(), socket: socket, exe: exe, path: program, setup: Setup{ReadyLimit: time.Millisecond},
		depot: depot.NewStore(depot.Limits{Items: 10, FDs: 10}, func(err error) { t.Error(err) }),
	}
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
