//go:build faultpoints

package fault

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/rdmad/rdmad/internal/faultpoint"
)

// setting is a life with what it is lived with.
type setting struct {
	life  string
	k, at int
}

func (s setting) String() string {
	if s.k == 0 {
		return s.life
	}
	return fmt.Sprintf("%s-%d-at-%d", s.life, s.k, s.at)
}

// clientSettings are all that victims live. A point is tried in the first life that
// comes there, and again in calls at every place of the ring and with runs of every
// length.
func clientSettings() (all []setting) {
	all = append(all, setting{"bells", 1, 0}, setting{"attach", 1, 0}, setting{"takeback", 2, 0}, setting{"refused", 3, 0},
		setting{"late", 1, 0}, setting{"full", 2, 0}, setting{"regions", 1, 0})
	for _, k := range []int{2, 1, 8} {
		for _, at := range []int{0, ringSlots / 2, ringSlots - k} {
			all = append(all, setting{"calls", k, at})
		}
	}
	return all
}

// lived is a victim and where it wrote down how its requests ended.
type lived struct {
	*process
	outcomes string
}

// live starts a victim.
func (r *rig) live(t *testing.T, s setting, kill string) lived {
	t.Helper()
	out := r.file("outcomes")
	return lived{r.spawn(t, "victim", victimArgs{
		Socket: r.a.Socket, Life: s.life, K: s.k, At: s.at, Run: r.runs.Add(1), Outcomes: out, Kill: kill,
	}), out}
}

// place is a passage of a point.
type place struct {
	point string
	n     int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.point, p.n) }

// places are the passages to try: the first two and a later one, of the points of a role
// that are to be tried; of any role if it is empty.
func (s *passages) places(role faultpoint.Role, wanted func(point string) bool) (all []place) {
	for _, name := range s.order {
		if !wanted(name) || !slices.ContainsFunc(faultpoint.Points, func(p faultpoint.Point) bool { return p.Name == name && (role == "" || p.Role == role) }) {
			continue
		}
		for _, n := range []int{1, 2, s.times[name]} {
			if n <= s.times[name] && (len(all) == 0 || all[len(all)-1] != place{name, n}) {
				all = append(all, place{name, n})
			}
		}
	}
	return all
}

// plan finds out where victims come, by letting one live each life to its end, and calls
// f with the passages to try. Without matrix a point is tried in one life only.
func (r *rig) plan(t *testing.T, matrix bool, f func(s setting, places []place)) {
	t.Helper()
	tried := map[string]bool{}
	for _, s := range clientSettings() {
		r.working.Lock()
		v := r.live(t, s, "")
		killed := v.end()
		r.working.Unlock()
		if killed || t.Failed() {
			t.Fatalf("%v: killed %v\n%s", s, killed, v.tail())
		}
		judge(t, readOutcomes(t, v.outcomes), r.executions())
		places := v.passages().places(faultpoint.Client, func(point string) bool { return s.life == "calls" && matrix || !tried[point] })
		for _, p := range places {
			tried[p.point] = true
		}
		f(s, places)
	}
}

// tries is how often a passage is tried that depends on how threads were scheduled.
const tries = 5

// A process that makes requests dies at every step of its life, at every place of the
// ring and with runs of every length: what it held is free again, others go on, and what
// it had sent is executed at most once.
func TestKillClients(t *testing.T) {
	r := newRig(t)
	defer r.figures(t)
	var ends []string
	r.plan(t, true, func(s setting, places []place) {
		t.Run(s.String(), func(t *testing.T) {
			for _, p := range places {
				t.Run(p.String(), func(t *testing.T) {
					for range tries {
						killed, out := r.killClient(t, s, p)
						ends = append(ends, out)
						if killed || p.n > 1 { // a later passage may not come
							return
						}
					}
				})
			}
			r.quiet(t)
		})
	})
	ended := outcomes{}
	for _, name := range ends {
		maps.Copy(ended, readOutcomes(t, name))
	}
	judge(t, ended, r.executions())
	t.Logf("%d outcomes of victims are known, %d requests were executed", len(ended), len(r.executions()))
	t.Run("every point", func(t *testing.T) { r.all(t, faultpoint.Client) })
}

// killClient lets a victim die at a place. killed is false if it never came there.
func (r *rig) killClient(t *testing.T, s setting, p place) (killed bool, outcomes string) {
	t.Helper()
	r.working.Lock() // the place in the ring is the victim's to choose
	v := r.live(t, s, p.String())
	killed = v.end()
	r.working.Unlock()
	r.clean(t)
	r.flows(t, 1)
	if at := v.passages().done; killed && !at[p.point] || len(at) > 1 {
		t.Errorf("killed %v, and it was at %v", killed, at)
	}
	if killed {
		r.hit[p.point] = true
	}
	return killed, v.outcomes
}

// left returns the points of a role at which nobody was killed.
func (r *rig) left(role faultpoint.Role) (points []string) {
	for _, p := range faultpoint.Points {
		if p.Role == role && !r.hit[p.Name] {
			points = append(points, p.Name)
		}
	}
	return points
}

// all checks that processes were killed at all points of a role.
func (r *rig) all(t *testing.T, role faultpoint.Role) {
	if left := r.left(role); len(left) > 0 {
		t.Errorf("nobody was killed at %v: no life, or no work, comes there", left)
	}
}
