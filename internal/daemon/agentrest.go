package daemon

import (
	"time"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// idleStrategy says what an agent does when there is nothing to do.
type idleStrategy struct {
	// busy: poll for ever.
	busy bool
	// spin: poll for so long before going to sleep, where it pays.
	spin shm.WaitMode
}

// rest is called after a cycle without work: it sleeps, or not, as the idle
// strategy says, until there may be something to do.
func (a *agent) rest() {
	if a.idle.busy {
		shm.Yield()
		a.wait(0)
		return
	}
	a.setTimer()
	// SYNC POINT (agent sleep): announced before the last look.
	for _, d := range a.domains {
		d.bells.PrepareSleep()
	}
	a.commands.prepareSleep()
	if !a.pending() {
		a.count.AgentSleeps++
		a.sleeps()
		if a.wait(poller.RawLimit) == 0 && !a.pending() && !a.rescan() {
			a.asleep.Store(true)
			a.wait(-1)
			a.asleep.Store(false)
		}
	}
	a.commands.cancelSleep()
	for _, d := range a.domains {
		d.bells.CancelSleep()
	}
}

// spins polls for a while instead of going to sleep, where that has paid lately, and reports
// whether there was work. Another processor may be at it: a sleep, and being woken from it
// across processors, takes several times as long as what is waited for. That says nothing of
// the next request: callers that pause between their calls make every other wait a long one, and
// what was learnt of the ones is not true of the others.
func (a *agent) spins() bool {
	if a.idle.busy {
		return false
	}
	poll := &a.between
	for _, d := range a.domains {
		if d.underWay > 0 {
			poll = &a.during
		}
	}
	poll.Mode = a.idle.spin // a command that is found may change the one, while the other is in use
	return poll.Until(a.found)
}

// look is a look at everything, as after a sleep.
func (a *agent) look() bool {
	a.wait(0)
	return a.cycle() > 0
}

// lingers lets others run instead of going to sleep, and reports whether they have made
// work.
func (a *agent) lingers() bool {
	return !a.idle.busy && a.linger.Until(a.anew)
}

// again is a look at what others have made while they had the processor.
func (a *agent) again() bool {
	a.glance()
	return a.cycle() > 0
}

// glance has the completion queues look for what may have arrived while others had the
// processor.
func (a *agent) glance() {
	for _, q := range a.cqs {
		if g, ok := q.(fabric.Glancer); ok {
			g.Glance()
		}
	}
}

// marked reports whether a worker has marked something that no cycle has taken.
func (a *agent) marked() bool {
	for _, d := range a.domains {
		if d.bells.Dirty() {
			return true
		}
	}
	return false
}

// handling reports whether requests wait for the agent to handle them.
func (a *agent) handling() bool {
	for _, d := range a.domains {
		if d.soon.len() > 0 {
			return true
		}
	}
	return false
}

// pending reports whether a sleep must not begin.
func (a *agent) pending() bool {
	if a.commands.waiting() || a.marked() || a.handling() {
		return true
	}
	for _, d := range a.domains {
		if d.anyDue() {
			return true
		}
	}
	for _, cq := range a.cqs {
		asleep, err := cq.Arm()
		if err != nil {
			event.CQArm.On(&a.log).Err(err).Msg("completion queue cannot be armed")
		}
		if !asleep {
			return true
		}
	}
	return false
}

// rescan is the safety net under all hints: before a long sleep the agent looks
// at every slot of its lanes once. It reports whether it found anything.
func (a *agent) rescan() bool {
	found := false
	for _, d := range a.domains {
		d.balance(true) // no share stays for want of something to do
		d.relieve()
		for _, l := range d.outLanes {
			l.plan.Rescan()
			found = l.send() > 0 || found
		}
		// What was refused must be told to its worker, too.
		found = found || len(d.touched) > 0 || len(d.freed) > 0
		// The timer is not set for what has just been found and held back.
		found = found || d.due != 0
	}
	return found
}

func (a *agent) wait(timeout time.Duration) int {
	n, err := a.poll.Wait(timeout)
	if err != nil {
		event.PollerFailed.On(&a.log).Err(err).Msg("poller failed")
	}
	return n
}
