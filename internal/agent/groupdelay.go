package agent

import (
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

// delaying is what an agent needs to hold groups back for group_send.max_group_delay;
// groupsend.Delay decides. An agent that holds nothing back has no timer. The others set
// theirs when they go to sleep, and not again before it has run out, unless something else
// is due earlier: at most two wake-ups for each delay are in vain.
type delaying struct {
	limit time.Duration // 0: nothing is ever held back
	// timer is nil until there is a limit; at is what it is set to.
	timer *poller.Timer
	at    int64
	// clock tells the time.
	clock func() int64
}

// DelayGroups makes the agent able to hold groups back, for at most limit. Call it before
// Start.
func (a *Agent) DelayGroups(limit time.Duration) (err error) {
	if limit > 0 && a.delay.timer == nil {
		if a.delay.timer, err = a.Poll.NewTimer(); err != nil {
			return err
		}
	}
	a.delay.limit, a.delay.clock = limit, shm.Nanotime
	return nil
}

// SetDelay changes for how long groups may be held back, on the agent's thread. What is
// held back already is looked at when it was to be.
func (a *Agent) SetDelay(limit time.Duration) {
	if err := a.DelayGroups(limit); err != nil {
		event.TimerFailed.On(&a.log).Err(err).Msg("no timer: groups are held back for as long as before")
		return
	}
	for _, d := range a.Domains {
		for _, l := range d.OutLanes {
			l.delay.SetLimit(limit)
		}
		for _, l := range d.InLanes {
			l.delay.SetLimit(limit)
		}
	}
}

// setTimer sees to it that a sleep ends when the first group is due.
func (a *Agent) setTimer() {
	k := &a.delay
	if k.timer == nil {
		return
	}
	var first int64
	for _, d := range a.Domains {
		if d.due != 0 && (first == 0 || d.due < first) {
			first = d.due
		}
	}
	if first == 0 || k.at != 0 && k.at <= first && k.clock() < k.at {
		return // what was set comes first
	}
	k.at = first
	if err := k.timer.Set(first); err != nil {
		event.TimerFailed.On(&a.log).Err(err).Msg("timer failed")
	}
}

// delayedLane is an end of a lane in Domain.delayed.
type delayedLane interface {
	// Send looks at the lane again.
	Send() int
	// undelay notes that it is no longer in the list.
	undelay()
}

func (l *OutLane) undelay() { l.delayed = false }
func (l *InLane) undelay()  { l.delayed = false }

// delayUntil notes that a lane is to be looked at again.
func (d *Domain) delayUntil(l delayedLane, listed *bool, until int64) {
	if d.due == 0 || until < d.due {
		d.due = until
	}
	if !*listed {
		*listed = true
		d.delayed = append(d.delayed, l)
		d.agent.Count.GroupsDelayed++
	}
}

// anyDue reports whether a lane that was held back is to be looked at.
func (d *Domain) anyDue() bool { return d.due != 0 && d.agent.delay.clock() >= d.due }

// sendDue looks at the lanes that were held back. Those that are to wait longer list
// themselves again, at a place that was read before.
func (d *Domain) sendDue() (work int) {
	list := d.delayed
	d.delayed, d.due = d.delayed[:0], 0
	for _, l := range list {
		l.undelay()
	}
	for i := range list {
		work += list[i].Send()
	}
	return work
}

// hurry makes the domain hold nothing back any more.
func (d *Domain) hurry() {
	d.hurried = true
	if d.due != 0 {
		d.due = 1
	}
}

// holdBack reports whether what is published is not to be sent yet.
func (l *OutLane) holdBack() (held bool, work int) {
	d := l.domain
	if !l.delay.On() || l.Local != nil || l.Draining || d.hurried || d.Retired {
		return false, 0
	}
	if l.Ring.Waiters() {
		return false, 0 // who waits for room adds nothing before there is some
	}
	w := l.Plan.Ready()
	w.Open = l.busy
	return d.askDelay(l, &l.delay, &l.delayed, w)
}

// holdBack reports whether finished answers are not to be sent yet.
func (l *InLane) holdBack() (held bool, work int) {
	d := l.domain
	if !l.delay.On() || l.Local != nil || d.hurried || d.Retired {
		return false, 0
	}
	w := l.answers.Ready()
	w.Open, w.Deadline = l.Busy, l.soonest
	return d.askDelay(l, &l.delay, &l.delayed, w)
}

// askDelay asks a lane's policy. News counts as work: the agent then lets other threads have
// the processor before it sleeps, and what they send needs no wake-up each.
func (d *Domain) askDelay(l delayedLane, policy *groupsend.Delay, listed *bool, w groupsend.Waiting) (held bool, work int) {
	until := policy.Until(d.agent.delay.clock(), w)
	if until == 0 {
		return false, 0
	}
	d.delayUntil(l, listed, until)
	if policy.News() {
		work = 1
	}
	return true, work
}

// sentAnswers notes that answers have been posted.
func (l *InLane) sentAnswers(more bool) {
	l.delay.Sent(more)
	if !more {
		l.soonest = 0
	}
}

// promised notes the deadline of a finished request; 0 for none.
func (l *InLane) promised(deadline int64) {
	if deadline != 0 && (l.soonest == 0 || deadline < l.soonest) {
		l.soonest = deadline
	}
}

// forgetDelayed takes a lane that is removed off the list.
func (d *Domain) forgetDelayed(l delayedLane) { d.delayed = Without(d.delayed, l) }
