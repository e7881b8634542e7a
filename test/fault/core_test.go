//go:build faultpoints

package fault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/faultpoint"
)

// armory is how cores are told where to die: one that runs, or the next one.
type armory struct{ prefix, log string }

// newArmory prepares the environment of cores that start from now on.
func newArmory(t *testing.T) *armory {
	dir := t.TempDir()
	m := &armory{filepath.Join(dir, "arm"), filepath.Join(dir, "log")}
	t.Setenv(faultpoint.ArmEnv, m.prefix)
	t.Setenv(faultpoint.LogEnv, m.log)
	return m
}

// arm tells a running core where to die. One that has died meanwhile is not told.
func (m *armory) arm(t *testing.T, pid int, kill string) {
	t.Helper()
	name := m.prefix + "." + strconv.Itoa(pid)
	if err := os.WriteFile(name, []byte(kill), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, faultpoint.ArmSignal); errors.Is(err, syscall.ESRCH) {
		// It has come to where it was to die before.
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		return
	} else if err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "the core is armed", func() error {
		for _, f := range []string{name, name + ".taken"} {
			// A core that is armed can die before it has removed the file.
			if _, err := os.Stat(f); err == nil && alive(pid) {
				return fmt.Errorf("%s is there", filepath.Base(f))
			}
		}
		return nil
	})
}

// armNext tells the core that starts next where to die. taken waits until it has heard.
func (m *armory) armNext(t *testing.T, kill string) (taken func()) {
	t.Helper()
	name := m.prefix + ".next"
	// Complete from the first instant on.
	if err := os.WriteFile(m.prefix+".new", []byte(kill), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(m.prefix+".new", name); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		daemontest.Eventually(t, "the next core is armed", func() error {
			if _, err := os.Stat(name); err == nil {
				return errors.New("the file is there")
			}
			return nil
		})
	}
}

// alive reports whether there is a process of that id that has not been waited for.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// died waits for the death of a process and reports whether it came in time.
func died(pid int, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if !alive(pid) {
			return true
		}
	}
	return false
}

const (
	// patience is how long a core may take to come to a point for the first time, and
	// hurry how long for later passages, which need not come.
	patience, hurry = limit, time.Second
	// again is after how long the occasion comes again for points that it does not always lead to.
	again = 500 * time.Millisecond
)

// spillAfter is short, so that answers are moved all the time.
const spillAfter = 10 * time.Millisecond

// rigOfCores is a pair of nodes with a crew.
type rigOfCores struct {
	*armory
	nodes [2]*daemontest.Node
	crew  *crew
	// processes starts others.
	processes *rig
	pauses    []time.Duration
}

func newRigOfCores(t *testing.T) *rigOfCores {
	r := &rigOfCores{armory: newArmory(t), processes: &rig{dir: t.TempDir()}}
	r.nodes[0], r.nodes[1] = daemontest.Pair(t, classes+fmt.Sprintf("[limits]\nspill_after=%q\n", spillAfter))
	r.crew = newCrew(t, r.nodes[:]...)
	return r
}

// goesOn waits until everybody works as before, after a death.
func (r *rigOfCores) goesOn(t *testing.T) {
	t.Helper()
	r.pauses = append(r.pauses, r.crew.flows(t, 2))
}

// far is the other node.
func (r *rigOfCores) far(n *daemontest.Node) *daemontest.Node {
	if n == r.nodes[0] {
		return r.nodes[1]
	}
	return r.nodes[0]
}

// occasion is when a core comes to points.
type occasion struct {
	name string
	// latest bounds the passages that are tried.
	latest int
	// begin makes the core of a node, or the next one, one that is to die where kill
	// says and that comes to the points of the occasion. It returns its process id.
	begin func(r *rigOfCores, t *testing.T, n *daemontest.Node, kill string) (pid int)
	// again, if set, makes the occasion come again for the same core: whether it comes to a
	// point is chance.
	again func(r *rigOfCores, t *testing.T, n *daemontest.Node)
	// loses: the session with the other node ends.
	loses bool
}

// ofLoss reports whether cores come to a point only when a session has ended. On a busy machine one
// may end on any occasion, and not when that comes again: who dies there dies when it must end.
func ofLoss(point string) bool { return strings.HasPrefix(point, "suspend.") }

// againMost bounds how often an occasion comes again.
const againMost = 30

// occasions are tried in this order: at a point that cores come to at work nobody dies for
// other reasons.
var occasions = []occasion{
	{"work", 64, (*rigOfCores).armCore, nil, false},
	// The next core adopts everything that is under way.
	{"start", 4, func(r *rigOfCores, t *testing.T, n *daemontest.Node, kill string) int {
		t.Helper()
		known := len(r.armed(t))
		taken := r.armNext(t, kill)
		if err := n.KillCore(); err != nil {
			t.Fatal(err)
		}
		taken()
		if kill != "" {
			r.armNext(t, kill) // and the one after it
		}
		var pid int
		daemontest.Eventually(t, "the next core says that it is armed", func() error {
			all := r.armed(t)
			if len(all) == known {
				return errors.New("it does not")
			}
			pid = all[known]
			return nil
		})
		return pid
	}, nil, false},
	// Processes of workers die at the same time.
	{"deaths", 2, func(r *rigOfCores, t *testing.T, n *daemontest.Node, kill string) int {
		t.Helper()
		pid := r.armCore(t, n, kill)
		v := r.processes.spawn(t, "victim", victimArgs{
			Socket: n.Socket, Life: "attach", K: 2, Outcomes: r.processes.file("outcomes"), Kill: "claim.held:1",
		})
		<-v.over
		return pid
	}, nil, false},
	// Processes of the other node die that have requests at this one.
	{"gone", 1, func(r *rigOfCores, t *testing.T, n *daemontest.Node, kill string) int {
		t.Helper()
		v := r.processes.spawn(t, "victim", victimArgs{Socket: r.far(n).Socket, Life: "leaves", Outcomes: r.processes.file("outcomes")})
		if !v.ready() {
			<-v.over
			t.Fatalf("the process has ended: %v: %s", v.err, v.errs.Bytes())
		}
		pid := r.armCore(t, n, kill)
		_ = v.cmd.Process.Kill()
		<-v.over
		return pid
	}, nil, false},
	// Everything that is under way between the nodes is resynchronised.
	{"loss", 2, func(r *rigOfCores, t *testing.T, n *daemontest.Node, kill string) int {
		t.Helper()
		pid := r.armCore(t, n, kill)
		r.loseFar(t, n)
		return pid
	}, (*rigOfCores).loseFar, true},
}

// loseFar kills the core of the other node.
func (r *rigOfCores) loseFar(t *testing.T, n *daemontest.Node) {
	t.Helper()
	if err := r.far(n).KillCore(); err != nil {
		t.Fatal(err)
	}
}

// armCore tells the core of a node where to die.
func (r *rigOfCores) armCore(t *testing.T, n *daemontest.Node, kill string) (pid int) {
	t.Helper()
	pid, err := n.Core()
	if err != nil {
		t.Fatal(err)
	}
	r.arm(t, pid, kill)
	return pid
}

// lines returns what the log says of a kind: the names, and the processes.
func (r *rigOfCores) lines(t *testing.T, verb string) (names []string, pids []int) {
	t.Helper()
	for _, line := range linesOf(t, r.log) {
		f := strings.Split(strings.TrimSpace(line), " ")
		if len(f) != 4 || f[0] != verb {
			continue
		}
		pid, err := strconv.Atoi(f[3])
		if err != nil {
			t.Fatalf("%s: %q", r.log, line)
		}
		names, pids = append(names, f[1]), append(pids, pid)
	}
	return names, pids
}

func (r *rigOfCores) armed(t *testing.T) (pids []int) {
	t.Helper()
	_, pids = r.lines(t, "armed")
	return pids
}

// A core dies at every step that has a name, of either node, while everybody works: at
// work, while it takes over from another one, twice in a row, and while it takes note of
// the other node's loss. Nobody notices but by the time that it takes: every request is
// answered, and executed once.
func TestKillCores(t *testing.T) {
	r := newRigOfCores(t)
	for k, n := range r.nodes {
		tried := map[string]bool{}
		for _, o := range occasions {
			pid := o.begin(r, t, n, "")
			r.crew.flows(t, 10)
			s := r.passed(t, n, o, pid)
			for name, times := range s.times {
				s.times[name] = min(times, o.latest)
			}
			places := s.places("", func(point string) bool { return !tried[point] && (o.loses || !ofLoss(point)) })
			// Where messages move each passage may find something else; elsewhere the
			// first one has to do. The second node need not do all again.
			places = slices.DeleteFunc(places, func(p place) bool {
				return p.n > 1 && !atWork(p.point) || p.n == 2 && k > 0
			})
			t.Run(n.Name+"/"+o.name, func(t *testing.T) {
				for _, p := range places {
					tried[p.point] = true
					t.Run(p.String(), func(t *testing.T) { r.killCore(t, n, o, p) })
					if t.Failed() {
						t.FailNow()
					}
				}
			})
		}
	}
	r.crew.stop(t)
	for _, n := range r.nodes {
		if err := n.Quiet(); err != nil {
			t.Error(err)
		}
	}
	r.crew.judge(t)
	slices.Sort(r.pauses)
	deaths, _ := r.lines(t, "kill")
	t.Logf("%d deaths; until everybody had gone on: half within %v, all within %v; rounds: %q",
		len(deaths), r.pauses[len(r.pauses)/2], r.pauses[len(r.pauses)-1], r.crew.rounds())
	t.Run("every point", func(t *testing.T) {
		for _, point := range r.spared(t) {
			t.Errorf("no core was killed at %s", point)
		}
	})
}

// spared returns the points of cores at which none was killed yet.
func (r *rigOfCores) spared(t *testing.T) (points []string) {
	t.Helper()
	deaths, _ := r.lines(t, "kill")
	for _, p := range faultpoint.Points {
		if (p.Role == faultpoint.Core || p.Role == faultpoint.Control) && !slices.Contains(deaths, p.Name) {
			points = append(points, p.Name)
		}
	}
	return points
}

// passed returns where a core has come on an occasion. What an occasion leads to by chance only,
// as requests that the other node had not seen when it was lost, one time need not show: it
// comes again until the core has been wherever none was killed before.
func (r *rigOfCores) passed(t *testing.T, n *daemontest.Node, o occasion, pid int) *passages {
	t.Helper()
	s := readPassages(t, r.log, pid)
	if o.again == nil {
		return s
	}
	missing := func(point string) bool { return s.times[point] == 0 }
	for tries := againMost; tries > 0 && slices.ContainsFunc(r.spared(t), missing); tries-- {
		o.again(r, t, n)
		r.crew.flows(t, 2)
		s = readPassages(t, r.log, pid)
	}
	return s
}

// atWork reports whether a point is one of a core that moves messages.
func atWork(point string) bool {
	return slices.ContainsFunc(faultpoint.Points, func(p faultpoint.Point) bool { return p.Name == point && p.Role == faultpoint.Core })
}

// killCore lets a core die at a place.
func (r *rigOfCores) killCore(t *testing.T, n *daemontest.Node, o occasion, p place) {
	t.Helper()
	pid := o.begin(r, t, n, p.String())
	within, tries := patience, 0
	switch {
	case p.n > 1:
		within = hurry
	case o.again != nil:
		within, tries = again, againMost
	}
	dead := died(pid, within)
	for ; tries > 0 && !dead && alive(pid); tries-- {
		r.crew.flows(t, 2)
		o.again(r, t, n)
		dead = died(pid, within)
	}
	if !dead && alive(pid) {
		r.arm(t, pid, "")
		if p.n == 1 && alive(pid) {
			t.Error("the core never came there")
		}
	}
	_ = os.Remove(r.prefix + ".next") // if no other core died
	r.goesOn(t)
	r.crew.mu.Lock()
	defer r.crew.mu.Unlock()
	for _, problem := range r.crew.problems {
		t.Error(problem)
	}
}
