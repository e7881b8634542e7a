package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/handoff"
	"github.com/rdmad/rdmad/internal/status"
)

func configOf(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test", []byte("[node]\nname = \"a\"\nsocket = \""+filepath.Join(t.TempDir(), "s.sock")+"\"\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// scripted is a supervisor whose program is a script for the shell.
func scripted(t *testing.T, settings, script string) *supervisor {
	t.Helper()
	program := filepath.Join(t.TempDir(), "core")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	exe, err := openExecutable(program, program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(exe.close)
	socket, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return &supervisor{
		cfg: configOf(t, settings), log: zerolog.Nop(), socket: socket, exe: exe, path: program,
		depot: depot.NewStore(depot.Limits{Items: 10, FDs: 10}, func(err error) { t.Error(err) }),
	}
}

// readsKept is how a script begins to use the depot, as a core does: it has read what is kept, to the end of that. If it said something
// and ended before, the depot could find it gone when it sends that, and would not hear it. Descriptor 6 does not block.
const readsKept = `tries=0
until dd bs=64k count=1 <&6 2>/dev/null | grep -q '"op":"end"' || [ $((tries += 1)) -gt 6000 ]; do sleep 0.01; done
`

// saysReady is how a script says that it serves.
const saysReady = readsKept + `printf '{"op":"ready"}' >&6
`

// A core that does not read its handoff is not waited for, however much that is.
func TestCoreThatDoesNotRead(t *testing.T) {
	var users []string
	for i := range 8000 {
		users = append(users, fmt.Sprint(100_000_000+i))
	}
	s := scripted(t, "[[domain]]\nname = \"jobs\"\nusers = ["+strings.Join(users, ", ")+"]\n", "exec sleep 600")
	core, err := s.startCore(s.exe)
	if err != nil {
		t.Fatal(err)
	}
	core.end(syscall.SIGKILL, time.Minute)
}

// toldRig is a supervisor whose core is being started. start is that core when it is told; next takes what it
// is told next.
func toldRig(t *testing.T, cfg *config.Config) (s *supervisor, start func() (told *handoff.Briefing, next func())) {
	s = &supervisor{cfg: cfg, log: zerolog.Nop(), depot: depot.NewStore(depot.Limits{Items: 10, FDs: 10}, func(err error) { t.Error(err) })}
	link, theirs, err := s.depot.Pair()
	if err != nil {
		t.Fatal(err)
	}
	s.core = &runningCore{link: link, ended: make(chan struct{})}
	return s, func() (*handoff.Briefing, func()) {
		served := make(chan struct{})
		go func() { link.Serve(); close(served) }()
		told, taken := handoff.NewBriefing("test", nil), make(chan struct{}, 100)
		core, _, err := depot.Open(theirs, func(note json.RawMessage) {
			told.Take(note)
			taken <- struct{}{}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = core.Close()
			<-served
		})
		if err := core.Ready(); err != nil {
			t.Fatal(err)
		}
		<-link.Ready()
		return told, func() {
			select {
			case <-taken:
			case <-time.After(time.Minute):
				t.Fatal("the core is not told")
			}
		}
	}
}

// tellAgain does what the supervisor does once a second while the core was not told, as where the machine stood still.
func tellAgain(s *supervisor) {
	for tries := 0; s.untold && tries < 100; tries++ {
		s.tell()
	}
}

// What a reload has put in force reaches the core also if another was refused before the core could be told.
func TestReloadRefusedBeforeTold(t *testing.T) {
	next := configOf(t, "[limits]\nworkers = 20\n")
	cfg := *next
	cfg.Limits.Workers = 10
	s, start := toldRig(t, &cfg)
	s.setup.Reload = func() (*config.Config, error) { return next, nil }
	s.reload()
	s.setup.Reload = func() (*config.Config, error) { return nil, errors.New("line 3: unknown key") }
	s.reload()
	if s.cfg.Limits.Workers != 20 || s.reloaded.Result != status.ReloadRefused {
		t.Fatalf("%d, %+v", s.cfg.Limits.Workers, s.reloaded)
	}
	told, heard := start()
	s.served()
	tellAgain(s)
	heard() // one piece, which is all of it
	if c := told.Config.Load(); c == nil || c.Digest() != s.cfg.Digest() {
		t.Errorf("the core has %+v", c)
	}
}

// How a reload went can be told however much it has changed.
func TestNoteOfManyChanges(t *testing.T) {
	domains := func(from int) string {
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, "[[domain]]\nname = \"the-domain-of-a-project-%d\"\n", i)
			var ids []string
			for u := range 80 {
				ids = append(ids, fmt.Sprint(from+i*100+u))
			}
			fmt.Fprintf(&b, "users = [%[1]s]\ngroups = [%[1]s]\n", strings.Join(ids, ", "))
		}
		return b.String()
	}
	before := configOf(t, domains(10000))
	s, start := toldRig(t, before)
	told, heard := start()
	after := configOf(t, domains(20000))
	after.Node.Socket = before.Node.Socket
	s.setup.Reload = func() (*config.Config, error) { return after, nil }
	s.reload()
	tellAgain(s)
	if r := s.reloaded; s.untold || r.Result != status.ReloadDone || r.More == 0 || len(r.Applied)+len(r.Pending)+r.More != 80 {
		data, _ := json.Marshal(r)
		t.Errorf("untold %v; %d applied, %d pending, %d more; %d bytes", s.untold, len(r.Applied), len(r.Pending), r.More, len(data))
	}
	for told.Reload.Load() == nil {
		heard()
	}
}
