package counters

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var someone = Identity{Node: "a", Program: "1.2.3", Incarnation: "abc", Digest: "0123", Supervisor: 7, Started: time.Unix(100, 5)}

func create(t testing.TB, r Rows) *File {
	t.Helper()
	f, err := Create(filepath.Join(t.TempDir(), "counters"), 0o640, someone, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.unmap() })
	return f
}

func read(t testing.TB, path string) *Snapshot {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What agents count is in the file at once, and in what the core itself sees, whether
// there is a file or not.
func TestFile(t *testing.T) {
	f := create(t, Rows{Agents: 2, Lanes: 2, Services: 1})
	hidden, err := New(someone, Rows{Agents: 2, Lanes: 2, Services: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := hidden.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, f := range []*File{f, hidden} {
		out := LaneID{Domain: "d", Peer: "b", Class: "small", Number: 3, Direction: Out}
		lane := f.Lane(out, 1, 64, 128)
		if f.Lane(out, 1, 64, 128) != lane {
			t.Error("another row for the same lane")
		}
		in := out
		in.Direction = In
		f.Lane(in, 0, 1, 2).Busy = 4
		// There are no more rows: what follows is "other".
		in.Number = 9
		if l := f.Lane(in, 1, 1, 2); l != f.Agent(1).OtherLane {
			t.Error("a lane beyond the rows has a row")
		} else {
			l.Requests = 11
		}
		lane.GroupSizes.Add(5)
		lane.Latency.Add(3000)
		lane.Outcomes.Add(2)
		f.Service(ServiceID{"d", "s", "m"}, 1).Latency.Add(5000)
		if s := f.Service(ServiceID{"d", "s", "n"}, 0); s != f.Agent(0).OtherService {
			t.Error("a method beyond the rows has a row")
		} else {
			s.Requests = 13
		}
		a := f.Agent(1)
		a.Counts.Wakes = 6
		a.Cycles.Add(1e6)
		a.Beat(77)
		f.Node().StruckOut = 8
		f.SetState(Draining)
		f.SetDigest("a digest that is longer")
		f.SetDigest("0123")
		s, err := f.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		check(t, s)
	}
	check(t, read(t, f.Path()))
	if info, err := os.Stat(f.Path()); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func check(t *testing.T, s *Snapshot) {
	t.Helper()
	if id := s.Identity; !id.Started.Equal(someone.Started) || id.Node != "a" || id.Program != "1.2.3" || id.Incarnation != "abc" || id.Digest != "0123" || id.Supervisor != 7 {
		t.Errorf("%+v", id)
	}
	if s.Core != os.Getpid() || s.State != Draining || s.Process() != ProcessAlive || s.Counts.StruckOut != 8 {
		t.Errorf("core %d, %v, %v, %+v", s.Core, s.State, s.Process(), s.Counts)
	}
	if len(s.Agents) != 2 || s.Agents[0].State != AgentNew || s.Agents[1].State != AgentWorking || s.Agents[1].Beat != 77 || s.Agents[1].Counts.Wakes != 6 || s.Agents[1].Cycles.Max != 1e6 || s.Sum()["wakes"] != 6 {
		t.Errorf("%+v", s.Agents)
	}
	if len(s.Lanes) != 3 || !s.Lanes[0].Other || s.Lanes[0].Agent != 1 || s.Lanes[0].Requests != 11 {
		t.Fatalf("%+v", s.Lanes)
	}
	if l := s.Lanes[1]; l.Other || l.LaneID != (LaneID{"d", "b", "small", 3, Out}) || l.Agent != 1 || l.Slots != 64 || l.SlotSize != 128 || l.GroupSizes.Count() != 1 || l.Latency.Max != 3000 || l.Outcomes.Map()["no_service"] != 1 {
		t.Errorf("%+v", l)
	}
	if l := s.Lanes[2]; l.Direction.String() != "in" || l.Busy != 4 {
		t.Errorf("%+v", l)
	}
	if len(s.Services) != 2 || !s.Services[0].Other || s.Services[0].Requests != 13 || s.Services[1].ServiceID != (ServiceID{"d", "s", "m"}) || s.Services[1].Latency.Sum != 5000 {
		t.Errorf("%+v", s.Services)
	}
}

// A file is replaced in one step: who has the old one open goes on reading that.
func TestReplaced(t *testing.T) {
	f := create(t, Rows{Agents: 1})
	f.Node().StruckOut = 1
	r, err := Open(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	next, err := Create(f.Path(), 0o600, someone, Rows{Agents: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	f.unmap = func() error { return nil }
	if s, err := r.Snapshot(); err != nil || s.State != Stopped || s.Counts.StruckOut != 1 {
		t.Errorf("the old one: %+v, %v", s, err)
	}
	if s := read(t, f.Path()); s.State != Running || s.Counts.StruckOut != 0 {
		t.Errorf("the new one: %+v", s)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if err := Remove(f.Path(), 0); err != nil {
		t.Error(err)
	}
	if _, err := Open(f.Path()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("opened what was removed: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(f.Path())); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Nothing is half made: not without room, nor where nothing may be written.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 4096 // as if the disk were full; the signal is ignored by the Go runtime
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &few); err != nil {
		t.Fatal(err)
	}
	_, err := Create(filepath.Join(dir, "counters"), 0o640, someone, Rows{Agents: 1})
	if e := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, unix.EFBIG) || !strings.Contains(err.Error(), filepath.Join(dir, "counters")) {
		t.Errorf("a file that is too large: %v", err)
	}
	if _, err := Create(filepath.Join(dir, "none", "counters"), 0o640, someone, Rows{Agents: 1}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(filepath.Join(dir, "taken"), 0o640, someone, Rows{Agents: 1}); err == nil {
		t.Error("a directory was replaced")
	}
	for _, r := range []Rows{{}, {Agents: 65}, {Agents: 1, Lanes: 4097}, {Agents: 1, Services: -1}} {
		if _, err := Create(filepath.Join(dir, "counters"), 0o640, someone, r); !errors.Is(err, ErrRows) {
			t.Errorf("%+v: %v", r, err)
		}
		if _, err := New(someone, r); !errors.Is(err, ErrRows) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// What is no file of counters is neither replaced nor removed.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	file, empty, link := filepath.Join(dir, "file"), filepath.Join(dir, "dir"), filepath.Join(dir, "link")
	for _, err := range []error{os.WriteFile(file, []byte("somebody's letters"), 0o600), os.Mkdir(empty, 0o700), os.Symlink(file, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{file, empty, link} {
		if _, err := Create(path, 0o600, Identity{}, Rows{Agents: 1}); !errors.Is(err, ErrForeign) {
			t.Errorf("%s replaced: %v", path, err)
		}
		if err := Remove(path, 0); !errors.Is(err, ErrForeign) {
			t.Errorf("%s removed: %v", path, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	own := filepath.Join(dir, "own")
	for range 2 { // the second takes the first one's place
		f, err := Create(own, 0o600, Identity{}, Rows{Agents: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(Remove(own, 0), Remove(own, 0)); err != nil {
		t.Error(err)
	}
}

// Counters of a daemon that runs are not another one's to replace or remove, before it has stopped.
func TestOfAnotherDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters")
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	orphan, err := Create(path, 0o600, Identity{Node: "o", Supervisor: gone.Process.Pid}, Rows{Agents: 1})
	if err != nil {
		t.Fatal(err)
	}
	// In place of those of a core whose supervisor is gone.
	f, err := Create(path, 0o600, Identity{Node: "a", Supervisor: 1}, Rows{Agents: 1})
	if err := errors.Join(err, orphan.Close()); err != nil {
		t.Fatal(err)
	}
	other := Identity{Node: "b", Supervisor: 2}
	if _, err := Create(path, 0o600, other, Rows{Agents: 1}); !errors.Is(err, ErrInUse) {
		t.Errorf("replaced: %v", err)
	}
	if err := Remove(path, other.Supervisor); !errors.Is(err, ErrInUse) {
		t.Errorf("removed: %v", err)
	}
	if s := read(t, path); s.Node != "a" {
		t.Errorf("%+v", s)
	}
	next, err := Create(path, 0o600, Identity{Node: "a", Supervisor: 1}, Rows{Agents: 1}) // the next core's
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), next.Close()); err != nil {
		t.Fatal(err)
	}
	f, err = Create(path, 0o600, other, Rows{Agents: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), Remove(path, other.Supervisor)); err != nil {
		t.Error(err)
	}
}
