//go:build faultpoints

package agent

import "github.com/rdmad/rdmad/internal/faultpoint"

// simGoroutines is how many simulations run at a time: what is to happen at a point is
// the process's.
const simGoroutines = 1

// corePoints are the steps at which a core can be stopped.
var corePoints = func() (names []string) {
	for _, p := range faultpoint.Points {
		if p.Role == faultpoint.Core {
			names = append(names, p.Name)
		}
	}
	return names
}()

// pointWatch is what a stopAt notes about its point. watching: the core is at work.
// watched: the point will be noticed.
type pointWatch struct{ watching, watched bool }

// watch lets the core stop when it comes to its point as often as it is to.
func (s *stopAt) watch() {
	s.watching = true
	if s.point == "" || s.watched {
		return
	}
	s.watched = true
	var pass func()
	pass = func() {
		if s.watching { // else a worker came there
			if s.passages--; s.passages == 0 {
				panic(simStop{})
			}
		}
		faultpoint.Do(s.point, 1, pass)
	}
	faultpoint.Do(s.point, 1, pass)
}

// unwatch is called when the core is not at work, and over when it never will be.
func (s *stopAt) unwatch() {
	s.watching = false
	if s.point != "" && (s.passages == 0 || s.left == 0) {
		if err := faultpoint.Arm(""); err != nil {
			panic(err)
		}
	}
}
