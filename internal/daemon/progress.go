package daemon

import (
	"slices"

	"github.com/rdmad/rdmad/internal/event"
)

// watchShare is in how many parts the watchdog's time is divided: so often the core looks
// whether everything makes progress, and says so.
const watchShare = 4

// watchedPart is a part of the core that has to make progress.
type watchedPart struct {
	name string
	// ask makes the part say something by calling the function when it comes to it.
	ask func(answer func())
	// waiting: it has been asked and has not answered.
	waiting bool
	answers chan struct{}
}

// watchProgress tells the supervisor that all is well as often as it must know, but only
// while everything makes progress: an agent ends its cycles and takes commands, and the
// conductor's lock can be had. Whoever does not answer is not asked again before it does, so that
// nothing piles up.
func (c *conductor) watchProgress() {
	every := c.watchdog / watchShare
	var parts []*watchedPart
	for _, a := range c.agents {
		parts = append(parts, &watchedPart{name: a.name, answers: make(chan struct{}, 1), ask: func(answer func()) {
			a.commands.do(answer)
		}})
	}
	parts = append(parts, &watchedPart{name: "conductor", answers: make(chan struct{}, 1), ask: func(answer func()) {
		// It may wait for as long as the lock is held, and ends with that.
		go func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			answer()
		}()
	}})
	var told []string
	for {
		for _, p := range parts {
			if !p.waiting {
				p.waiting = true
				p.ask(func() { p.answers <- struct{}{} })
			}
		}
		if !sleep(c.ctx, every) {
			return
		}
		stalled := stalledParts(parts)
		if len(stalled) > 0 && !slices.Equal(stalled, told) {
			event.CoreStalled.On(&c.log).Strs("parts", stalled).Dur("for", every).Msg("no progress; the service manager is not told that all is well")
		}
		if len(stalled) == 0 {
			_ = c.depot.Alive() // without a supervisor the core ends anyway
		}
		told = stalled
	}
}

// stalledParts takes what the parts have answered and returns the names of those that have
// not.
func stalledParts(parts []*watchedPart) (names []string) {
	for _, p := range parts {
		select {
		case <-p.answers:
			p.waiting = false
		default:
			names = append(names, p.name)
		}
	}
	return names
}
