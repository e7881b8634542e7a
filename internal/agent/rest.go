package agent

import (
	"time"

	"github.com/rdmad/rdmad/internal/cgroup"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// IdleStrategy says what an agent does when there is nothing to do.
type IdleStrategy struct {
	// busy: poll for ever.
	busy bool
	// spin: poll for so long before going to sleep, where it pays.
	spin shm.WaitMode
}

// unarmedRest is how long an agent sleeps at most of which a completion queue cannot be armed, so that nobody wakes it for completions.
const unarmedRest = time.Millisecond

// rest is called after a cycle without work: it sleeps, or not, as the idle
// strategy says, until there may be something to do.
func (a *Agent) rest() {
	if a.Idle.busy {
		shm.Yield()
		a.wait(0)
		return
	}
	a.setTimer()
	// SYNC POINT (agent sleep): announced before the last look.
	for _, d := range a.Domains {
		d.bells.PrepareSleep()
	}
	a.Commands.prepareSleep()
	switch {
	case a.pending():
	case a.unarmed:
		a.wait(unarmedRest)
	default:
		a.Count.AgentSleeps++
		a.sleeps()
		if a.wait(poller.RawLimit) == 0 && !a.pending() && !a.rescan() {
			a.Asleep.Store(true)
			a.wait(-1)
			a.Asleep.Store(false)
		}
	}
	a.Commands.cancelSleep()
	for _, d := range a.Domains {
		d.bells.CancelSleep()
	}
}

// spins polls for a while instead of going to sleep, where that has paid lately, and reports
// whether there was work. Another processor may be at it: a sleep, and being woken from it
// across processors, takes several times as long as what is waited for. That says nothing of
// the next request: callers that pause between their calls make every other wait a long one, and
// what was learnt of the ones is not true of the others.
func (a *Agent) spins() bool {
	if a.Idle.busy {
		return false
	}
	poll := &a.between
	for _, d := range a.Domains {
		if d.underWay > 0 {
			poll = &a.during
		}
	}
	poll.Mode = a.Idle.spin // a command that is found may change the one, while the other is in use
	return poll.Until(a.found)
}

// look is a look at everything, as after a sleep.
func (a *Agent) look() bool {
	a.wait(0)
	return a.cycle() > 0
}

// lingers lets others run instead of going to sleep, and reports whether they have made
// work.
func (a *Agent) lingers() bool {
	return !a.Idle.busy && a.linger.Until(a.anew)
}

// again is a look at what others have made while they had the processor.
func (a *Agent) again() bool {
	a.glance()
	return a.cycle() > 0
}

// glance has the completion queues look for what may have arrived while others had the
// processor.
func (a *Agent) glance() {
	for _, q := range a.CQs {
		if g, ok := q.(fabric.Glancer); ok {
			g.Glance()
		}
	}
}

// marked reports whether a worker has marked something that no cycle has taken.
func (a *Agent) marked() bool {
	for _, d := range a.Domains {
		if d.bells.Dirty() {
			return true
		}
	}
	return false
}

// handling reports whether requests wait for the agent to handle them.
func (a *Agent) handling() bool {
	for _, d := range a.Domains {
		if d.soon.len() > 0 {
			return true
		}
	}
	return false
}

// pending reports whether a sleep must not begin.
func (a *Agent) pending() bool {
	if a.Commands.waiting() || a.marked() || a.handling() {
		return true
	}
	for _, d := range a.Domains {
		if d.anyDue() || d.roomier || d.midway || len(d.againWorkers) > 0 {
			return true
		}
	}
	a.unarmed = false
	for i, cq := range a.CQs {
		asleep, err := cq.Arm()
		if err != nil {
			a.cannotArm(i, err)
			continue
		}
		if !asleep {
			return true
		}
	}
	return false
}

// cannotArm notes that a completion queue will not wake the agent. It may be so for good, and is told once.
func (a *Agent) cannotArm(queue int, err error) {
	a.unarmed = true
	if a.told == nil {
		a.told = make([]bool, len(a.CQs))
	}
	if !a.told[queue] {
		a.told[queue] = true
		event.CQArm.On(&a.log).Err(err).Int("fabric", queue).Msg("completion queue cannot be armed: it is looked at every millisecond")
	}
}

// rescan is the safety net under all hints: before a long sleep the agent looks
// at every slot of its lanes once. It reports whether it found anything.
func (a *Agent) rescan() bool {
	found := false
	for _, d := range a.Domains {
		d.balance(true) // no share stays for want of something to do
		d.relieve()
		for _, l := range d.OutLanes {
			l.Plan.Rescan()
			found = l.Send() > 0 || found
		}
		// What was refused must be told to its worker, too.
		found = found || len(d.touched) > 0 || len(d.freed) > 0
		// The timer is not set for what has just been found and held back.
		found = found || d.due != 0
	}
	return found
}

func (a *Agent) wait(timeout time.Duration) int {
	n, err := a.Poll.Wait(timeout)
	if err != nil {
		event.PollerFailed.On(&a.log).Err(err).Msg("poller failed")
	}
	return n
}

// IdleFor is idleOf with what the daemon may use now.
func IdleFor(cfg *config.Config) IdleStrategy {
	processors, time := cgroup.Usable()
	return idleOf(cfg, processors, time)
}

// idleOf returns what agents do when there is nothing to do, and the daemon may use so many
// processors and so much processor time per time.
func idleOf(cfg *config.Config, processors int, time float64) IdleStrategy {
	idle := IdleStrategy{busy: cfg.Agent.Idle == "busy"}
	// Polling is for what another processor does meanwhile. Within a limit of less than one processor for each
	// agent it would use up what is for work.
	if cfg.Agent.Idle == "adaptive" && processors > cfg.Agent.Count && time >= float64(cfg.Agent.Count) {
		idle.spin = shm.WaitAdaptive(cfg.Agent.Spin)
	}
	return idle
}
