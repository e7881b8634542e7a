package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/handoff"
)

// A core that is told to stop before it listens has stopped well; one that fails has not.
func TestStopOfACore(t *testing.T) {
	for _, c := range []struct {
		script string
		well   bool
	}{
		{"exec sleep 600", true},
		{"trap 'exit 0' TERM; echo; while :; do sleep 0.01; done", true},
		{"trap 'exit 1' TERM; echo; while :; do sleep 0.01; done", false},
		{"trap 'kill -KILL $$' TERM; echo; while :; do sleep 0.01; done", false},
	} {
		cmd := exec.Command("sh", "-c", c.script)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if c.script[0] == 't' {
			_, _ = out.Read(make([]byte, 1)) // the trap is set
		}
		core := &runningCore{cmd: cmd, ended: make(chan struct{})}
		go func() {
			core.err = cmd.Wait()
			close(core.ended)
		}()
		if err := core.stop(time.Minute, nil, zerolog.Nop(), func() {}); (err == nil) != c.well {
			t.Errorf("%s: %v", c.script, err)
		}
	}
}

// A first core that cannot start is said to be so also if the daemon is told to stop just then.
func TestStopWhileTheCoreCannotStart(t *testing.T) {
	listens := filepath.Join(t.TempDir(), "listens")
	if err := unix.Mkfifo(listens, 0o600); err != nil {
		t.Fatal(err)
	}
	s := scripted(t, "", fmt.Sprintf("trap 'exit %d' TERM; : >%s; while :; do sleep 0.01; done", handoff.StatusNoStart, listens))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		f, err := os.Open(listens) // the trap is set
		if err != nil {
			t.Error(err)
			return
		}
		_ = f.Close()
		stop()
	}()
	if err := s.run(ctx); err == nil || err.Error() != "the core cannot start" {
		t.Error(err)
	}
}

// A first core that ends well before it is ready may have been told to stop: another one is tried, and no more.
func TestFirstCoresLeave(t *testing.T) {
	starts := filepath.Join(t.TempDir(), "starts")
	s := scripted(t, "", "echo >>"+starts)
	if err := s.run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "the core cannot start: ") {
		t.Error(err)
	}
	if made, err := os.ReadFile(starts); err != nil || len(made) != 2 {
		t.Errorf("%d starts, want 2 (%v)", len(made), err)
	}
}

// asCore does something with the depot as a core does, which then ends. It returns the supervisor's end.
func asCore(t *testing.T, s *supervisor, do func(*depot.Client) error) *depot.Link {
	t.Helper()
	link, theirs, err := s.depot.Pair()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { link.Serve(); close(served) }()
	core, _, err := depot.Open(theirs, nil)
	if err == nil {
		err = errors.Join(do(core), core.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	<-served
	return link
}

// leave leaves something in the depot, as a core does.
func leave(t *testing.T, s *supervisor) {
	t.Helper()
	asCore(t, s, func(last *depot.Client) error { return last.Put("worker", struct{}{}) })
}

// listensLate is a core that is some time in coming to listen to SIGTERM, for which it makes a file.
const listensLate = `sleep 0.2; trap ': >drained; exit 0' TERM
` + saysReady

// A core that goes on where another one ended is not told to drain before it listens.
func TestStopOfAnHeir(t *testing.T) {
	dir := t.TempDir()
	s := scripted(t, "", "cd "+dir+"; "+listensLate+"while :; do sleep 0.01; done")
	leave(t, s)
	core, err := s.startCore(s.exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := core.stop(time.Minute, nil, zerolog.Nop(), func() {}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "drained")); err != nil {
		t.Errorf("it has not drained: %v", err)
	}
}

// However long it takes to get ready, it has all the time for its drain, and the service manager is told that it begins.
func TestStopOfALateHeir(t *testing.T) {
	const patience = 4 * time.Second
	for _, late := range []time.Duration{patience - 100*time.Millisecond, patience + 500*time.Millisecond} {
		t.Run(late.String(), func(t *testing.T) {
			for tries := 5; ; tries-- {
				err := stopLateHeir(t, late, patience)
				if err == nil {
					return
				}
				// That it was killed is the test's fault if it has stood still for as long as it may take.
				if tries == 1 || !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
			}
		})
	}
}

// stopLateHeir stops a core that goes on where another one ended and is late to be ready.
func stopLateHeir(t *testing.T, late, patience time.Duration) error {
	t.Helper()
	drained := filepath.Join(t.TempDir(), "drained")
	s := scripted(t, "", fmt.Sprintf("sleep %v; trap 'sleep 0.3; : >%s; exit 0' TERM\n%swhile :; do sleep 0.01; done", late.Seconds(), drained, saysReady))
	leave(t, s)
	core, err := s.startCore(s.exe)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	if err := core.stop(patience, nil, zerolog.Nop(), func() { told++ }); err != nil {
		return err
	}
	if _, err := os.Stat(drained); err != nil {
		t.Errorf("it has not drained: %v", err)
	}
	if told == 0 {
		t.Error("nobody is told that the drain begins")
	}
	return nil
}

// A daemon that is told to stop while its core hands over to the next one has what is under way drained by that, which is not told
// before it listens.
func TestStopInAnUpgrade(t *testing.T) {
	dir := t.TempDir()
	serves, handsOver := filepath.Join(dir, "serves"), filepath.Join(dir, "hands-over")
	for _, name := range []string{serves, handsOver} {
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := scripted(t, "", `case "$*" in *--probe*) echo {}; exit ;; esac
cd `+dir+`
if mkdir first 2>/dev/null; then
	trap ': >hands-over; sleep 0.5; exit 5' USR1
	`+saysReady+`
	: >serves
else
	`+listensLate+`
fi
while :; do sleep 0.01; done`)
	s.upgrades = make(chan os.Signal, 1)
	leave(t, s)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	awaited := func(fifo string) bool {
		f, err := os.Open(fifo)
		if err != nil {
			t.Error(err)
			return false
		}
		return f.Close() == nil
	}
	go func() {
		defer stop()
		if awaited(serves) {
			s.upgrades <- unix.SIGUSR2
			awaited(handsOver)
		}
	}()
	if err := s.run(ctx); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "drained")); err != nil {
		t.Errorf("the next core has not drained: %v", err)
	}
}

// What is under way when a daemon is told to stop is drained by another core if the one that is to do it dies: once, and not after one that
// has drained, or has had its time for that.
func TestStopBesideDeaths(t *testing.T) {
	const serves = saysReady + ": >serves; while :; do sleep 0.01; done"
	for name, c := range map[string]struct {
		first, second string
		inTheWait     bool // the daemon is told to stop then, else by the first core
		ends          int
		starts        string
		drained       bool
	}{
		"in its drain":       {"trap 'kill -KILL $$' TERM; " + serves, listensLate, false, 0, "1 2", true},
		"before it is ready": {"exit 3", listensLate, true, 0, "1 2", true},
		"both":               {"trap 'exit 3' TERM; " + serves, "exit 7", false, 7, "1 2", false},
		"it has drained":     {"trap ': >drained; exit 0' TERM; " + serves, "exit 7", false, 0, "1", true},
		"its time was over":  {fmt.Sprintf("trap 'exit %d' TERM; ", handoff.StatusUndrained) + serves, "exit 7", false, handoff.StatusUndrained, "1", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fifo := filepath.Join(dir, "serves")
			if err := unix.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			s := scripted(t, "", "cd "+dir+`
if mkdir 1 2>/dev/null; then
	`+c.first+`
elif mkdir 2 2>/dev/null; then
	`+c.second+`
else
	mkdir 3; exit 8
fi
while :; do sleep 0.01; done`)
			leave(t, s)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if c.inTheWait {
				s.log = zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, what string) {
					if what == "the core died" {
						stop()
					}
				}))
			} else {
				go func() {
					defer stop()
					if f, err := os.Open(fifo); err != nil {
						t.Error(err)
					} else {
						_ = f.Close()
					}
				}()
			}
			if err := s.run(ctx); (err == nil) != (c.ends == 0) || err != nil && exitStatus(err) != c.ends {
				t.Errorf("%v, want status %d", err, c.ends)
			}
			starts, err := filepath.Glob(filepath.Join(dir, "[0-9]"))
			for i := range starts {
				starts[i] = filepath.Base(starts[i])
			}
			if got := strings.Join(starts, " "); got != c.starts || err != nil {
				t.Errorf("cores %s, want %s (%v)", got, c.starts, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "drained")); (err == nil) != c.drained {
				t.Errorf("drained: %v, want %v", err, c.drained)
			}
		})
	}
}

// A core that had to be killed when it was to stop has had all the time there is.
func TestNoneAfterACoreThatDoesNotStop(t *testing.T) {
	s := scripted(t, "", "trap '' TERM\n"+saysReady+"while :; do sleep 0.01; done")
	leave(t, s)
	core, err := s.startCore(s.exe)
	if err != nil {
		t.Fatal(err)
	}
	<-core.link.Ready() // the trap is set
	if err := core.stop(time.Millisecond, nil, zerolog.Nop(), func() {}); err == nil || s.undrained(err) || !s.undrained(core.err) {
		t.Errorf("%v, %v", err, core.err)
	}
}

// A core that has ended needed no signal, and does not hang, also where its time is over, or it was found to hang, by the time that
// anybody looks.
func TestEndedIsWhatCounts(t *testing.T) {
	s := scripted(t, "", "exit 0")
	core, err := s.startCore(s.exe)
	if err != nil {
		t.Fatal(err)
	}
	<-core.ended
	stuck := make(chan struct{})
	close(stuck)
	for range 50 {
		if how := core.endUnless(stuck, unix.SIGTERM, 0); how != ended {
			t.Fatalf("it is said to have ended as %v", how)
		}
	}
}
