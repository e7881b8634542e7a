package supervisor

import "time"

// The waits before a core that has died is started again. A core that has served is
// followed at once, because workers wait for the next one; but one that dies again and
// again must not keep the machine busy for ever.
const (
	// restartCredit is how many cores in a row are followed at once, and creditEvery how
	// often one more may be.
	restartCredit = 200
	creditEvery   = time.Second / 2
	// The waits without credit, or after a core that has never served, double. Those after
	// cores that have served end sooner: calls wait for the next one.
	firstRestart  = 100 * time.Millisecond
	servedRestart = 400 * time.Millisecond
	lastRestart   = 5 * time.Second
)

// restarts decides how soon a core is started again. The zero restarts has all
// the credit there can be.
type restarts struct {
	credit int
	since  time.Time // credit is as of then
	wait   time.Duration
}

// next returns how long to wait at the time now for the core after one that has died.
func (r *restarts) next(now time.Time, served bool) time.Duration {
	if n := now.Sub(r.since) / creditEvery; n > 0 {
		r.credit = int(min(time.Duration(r.credit)+n, restartCredit))
		r.since = now
	}
	if served && r.credit > 0 {
		r.credit--
		r.wait = 0
		return 0
	}
	last := lastRestart
	if served {
		last = servedRestart
	}
	r.wait = min(max(2*r.wait, firstRestart), last)
	return r.wait
}
