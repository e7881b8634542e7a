//go:build !faultpoints

package agent

// simGoroutines is how many simulations run at a time.
const simGoroutines = 2

// corePoints are the steps at which a core can be stopped: none in this build.
var corePoints []string

// pointWatch is empty without points.
type pointWatch struct{}

func (s *stopAt) watch() { s.pointWatch = pointWatch{} }

func (s *stopAt) unwatch() {}
