package daemon

import (
	"slices"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/event"
)

// letSleep is how many times in a row an agent that sleeps without an end is let sleep instead of
// being asked: what ends its sleep is the kernel's to tell it, and to be woken costs an idle daemon
// more than all else that it does.
const letSleep = 11

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
// while everything makes progress: an agent ends its cycles and takes commands, or sleeps for lack
// of work, and the conductor's lock can be had. Whoever does not answer is not asked again before it
// does, so that nothing piles up.
func (c *conductor) watchProgress() {
	every := c.beatEvery
	var parts []*watchedPart
	for _, a := range c.agents {
		let := 0
		parts = append(parts, &watchedPart{name: a.Name, answers: make(chan struct{}, 1), ask: func(answer func()) {
			if a.Asleep.Load() && let < letSleep {
				let++
				answer()
				return
			}
			let = 0
			a.Commands.Do(answer)
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
			event.CoreStalled.On(&c.log).Strs("parts", stalled).Dur("for", every).Msg("no progress; the supervisor is not told that all is well")
		}
		if len(stalled) == 0 {
			c.pulse.Beat()
		}
		told = stalled
	}
}

// beat tells the supervisor that all is well until the function that it returns is called: at its end the core waits for handlers and
// devices, and there is nobody to ask for progress. What bounds that is the time that the supervisor gives a core to stop.
func (c *conductor) beat() (stop func()) {
	if c.beatEvery == 0 {
		return func() {}
	}
	over := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		every := time.NewTicker(c.beatEvery)
		defer every.Stop()
		for {
			c.pulse.Beat()
			select {
			case <-every.C:
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		beats.Wait()
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
