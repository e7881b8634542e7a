package test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/cmd/rdmad/sandbox"
)

// Messages of many processes go out in groups, and their answers come back in
// groups. With groups of one they do not.
func TestGroups(t *testing.T) {
	for _, test := range []struct {
		most            int
		atLeast, atMost float64
		count           string
	}{
		{0, 16, 255, "400000"},
		{1, 1, 1, "100000"},
	} {
		c := newPair(t, sandbox.Settings{GroupMax: test.most})
		startEcho(t, c, "b")
		r := runBench(t, c, "call", "--clients", "8", "--depth", "64", "--count", test.count, "--target", "b")
		for what, n := range map[string]float64{"request": r.RequestGroup, "answer": r.AnswerGroup} {
			if n < test.atLeast || n > test.atMost {
				t.Errorf("at most %d messages in a group: %.1f messages in a %s group, want %v to %v", test.most, n, what, test.atLeast, test.atMost)
			}
		}
		if r.Mismatches != 0 {
			t.Errorf("%d wrong answers", r.Mismatches)
		}
	}
}

// A lane that is idle sends at once: one call at a time makes groups of one, and no
// daemon has a timer for them. Under load groups grow by themselves, as TestGroups shows.
func TestIdleLaneSendsAtOnce(t *testing.T) {
	c := newPair(t, sandbox.Settings{})
	startEcho(t, c, "b")
	r := runBench(t, c, "call", "--count", "500", "--target", "b")
	if r.RequestGroup != 1 || r.AnswerGroup != 1 {
		t.Errorf("%v requests and %v answers in a group", r.RequestGroup, r.AnswerGroup)
	}
	for _, name := range c.names {
		if n := timers(t, c, name); n != 0 {
			t.Errorf("the core of %s has %d timers", name, n)
		}
		if n := c.status(name).Counters["groups_delayed"]; n != 0 {
			t.Errorf("%s has held groups back %d times", name, n)
		}
	}
}

// timers counts the timer descriptors of a node's core.
func timers(t *testing.T, c *cluster, name string) (n int) {
	t.Helper()
	p, err := c.nodes[name].PIDs(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/proc/%d/fd", p.Core)
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && strings.Contains(to, "[timerfd]") {
			n++
		}
	}
	return n
}

// With max_group_delay the groups of many processes grow, and a round trip takes longer
// by at most the delay there and the delay back.
func TestGroupDelay(t *testing.T) {
	const rounds, delay = 3, 5 * time.Millisecond
	settings := []sandbox.Settings{{}, {MaxGroupDelay: delay.String()}}
	var group, p50 [2][]float64
	var pairs [2]*cluster
	for i, s := range settings {
		pairs[i] = newPair(t, s)
		startEcho(t, pairs[i], "b")
	}
	// On a machine that is busy with something else, groups are large without a delay, too.
	larger := func() bool {
		with := slices.Max(group[1])
		return with >= 1.3*slices.Min(group[0]) || with >= 6
	}
	// What the scheduler of such a machine adds is not the delay's fault.
	prompt := func() bool {
		return slices.Min(p50[1]) <= 3*slices.Max(p50[0])+2*float64(delay.Microseconds())
	}
	// Where it is so busy that the callers do not come together within the delay, all is measured once more.
	for tries := 0; tries < 2 && (tries == 0 || !larger() || !prompt()); tries++ {
		group, p50 = [2][]float64{}, [2][]float64{}
		for range rounds {
			for i, c := range pairs {
				r := runBench(t, c, "call", "--clients", "8", "--depth", "1", "--duration", "1s", "--target", "b")
				if r.Mismatches != 0 {
					t.Errorf("%d wrong answers", r.Mismatches)
				}
				group[i], p50[i] = append(group[i], r.RequestGroup), append(p50[i], r.Latency.P50)
			}
		}
		t.Logf("messages in a group: %.2f without a delay, %.2f with it; p50 %.0f and %.0f us", group[0], group[1], p50[0], p50[1])
	}
	if !larger() {
		t.Errorf("%.2f messages in a group, %.2f without a delay", group[1], group[0])
	}
	if !prompt() {
		t.Errorf("p50 is %.0f us, without a delay %.0f us", p50[1], p50[0])
	}
	for _, name := range pairs[1].names {
		if n := timers(t, pairs[1], name); n != 1 {
			t.Errorf("the core of %s has %d timers for one agent", name, n)
		}
	}
}

// One caller at a time does not wait, however long the delay; nor do the calls that are
// under way when the node stops.
func TestGroupDelayOfOneCaller(t *testing.T) {
	const calls = 500
	c := newPair(t, sandbox.Settings{MaxGroupDelay: "100ms"})
	startEcho(t, c, "b")
	runBench(t, c, "call", "--count", fmt.Sprint(calls), "--target", "b")
	for _, name := range c.names {
		// Something else may have been under way when it started.
		if n := c.status(name).Counters["groups_delayed"]; n > calls/20 {
			t.Errorf("%s has held back %d times for %d calls", name, n, calls)
		}
	}
	// Several are held back for each other, and drained in time all the same.
	before := c.status("a").Counters["requests_sent"]
	load := begin(t, rdmad(t, "bench", "call", "--clients", "4", "--duration", "5s", "--target", "b", "--socket", c.socket("a")))
	eventually(t, "calls of four", func() bool { return c.status("a").Counters["requests_sent"] > before+20 })
	c.stop("a")
	load.end()
}
