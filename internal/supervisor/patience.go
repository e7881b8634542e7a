package supervisor

import (
	"sync"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
)

// startLimit is how long a core may take until it is ready. It may have very much memory to register, so it is
// there for one that never will be.
const startLimit = 10 * time.Minute

// patience is how long the supervisor bears a core whose pulse does not beat.
type patience struct {
	every time.Duration
	// ticks is when to look; nil if nobody has to know.
	ticks <-chan time.Time
	// most is how many ticks without a beat are borne; 0 for any number. starts is how many a core may take until
	// it is ready.
	most, starts int
	// last was the last tick and beats what the pulse had counted then, and silent is how many there
	// were since it last beat. starting is for how many the core has not been ready.
	last             time.Time
	beats            uint64
	silent, starting int
}

// beatEvery is how often the core must say that all is well; 0: it need not.
func (s *supervisor) beatEvery() time.Duration {
	limit := s.cfg.Node.HangLimit
	if limit == 0 || s.watchdog > 0 && s.watchdog < limit {
		limit = s.watchdog
	}
	return limit / handoff.WatchShare
}

// newPatience returns the patience with a core, and what ends its ticks.
func (s *supervisor) newPatience() (p *patience, stop func()) {
	if s.pulse == nil {
		return new(patience), func() {}
	}
	every := s.beatEvery()
	t := time.NewTicker(every)
	return &patience{every: every, ticks: t.C, most: int(s.cfg.Node.HangLimit / every), starts: int(startLimit / every), last: time.Now(), beats: s.pulse.Beats.Load()}, t.Stop
}

// count counts a tick. It reports whether all is well as far as can be known, and whether patience is over. A core
// that is ready must beat within the limit; alive is whether it has done so since the last tick. One
// that starts need not, and has startLimit. A supervisor that did not run for a while knows nothing: perhaps the whole
// machine stood still, and the core gets as long as anybody to go on.
func (p *patience) count(now time.Time, beats uint64, ready bool) (over, alive bool) {
	alive = beats != p.beats
	p.silent++
	if alive || !ready || now.Sub(p.last) >= 2*p.every {
		p.silent = 0
	}
	if ready {
		p.starting = 0
	} else if p.starting <= p.starts {
		p.starting++
		alive = p.starting <= p.starts
	}
	p.last, p.beats = now, beats
	return p.most > 0 && (p.silent > p.most || p.starting > p.starts), alive
}

// stuck returns what is closed when patience with the core is over, which nobody else counts from now on. settled waits until nobody
// does so any more, because it is or the core has ended.
func (s *supervisor) stuck(p *patience) (stuck <-chan struct{}, settled func()) {
	over, core := make(chan struct{}), s.core
	var counting sync.WaitGroup
	counting.Go(func() {
		for {
			select {
			case <-core.ended:
				return
			case now := <-p.ticks:
				if hangs, _ := p.count(now, s.pulse.Beats.Load(), core.ready()); hangs {
					close(over)
					return
				}
			}
		}
	})
	return over, counting.Wait
}

// giveUp ends a core that hangs. What it says before goes to where the supervisor's own
// errors go.
func (s *supervisor) giveUp() error {
	limit, what := s.cfg.Node.HangLimit, "the core makes no progress (node.hang_limit)"
	if !s.core.ready() {
		limit, what = startLimit, "the core does not become ready"
	}
	event.CoreHung.On(&s.log).Int("pid", s.core.cmd.Process.Pid).Dur("for", limit).Msg(what + "; it is told to write its stacks and ended")
	s.backup.Tell("WATCHDOG=1\nSTATUS=The core hung and is started again")
	s.core.end(syscall.SIGQUIT, handoff.LastWords)
	return s.core.err
}
