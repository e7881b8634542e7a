package agent

import (
	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// What the agent counts of lanes and methods, on its own thread, in rows of package
// counters. Times are measured with one reading of the clock for each cycle: what happens
// in a cycle happens when it begins.

// stampShift makes stamps of times in nanoseconds: units of 512 ns, which wrap after 36
// minutes. A request that takes longer than that is counted as one that was quicker.
const stampShift = 9

// begin begins a cycle.
func (a *Agent) begin() {
	before := a.now
	a.tick()
	if a.awake {
		a.tally.Cycles.Add(uint64(a.now - before))
	}
	a.awake = true
	a.Count.AgentCycles++
	a.tally.Beat(a.now)
}

// tick reads the clock.
func (a *Agent) tick() {
	a.now = shm.Nanotime()
	a.stamp = uint32(uint64(a.now) >> stampShift)
}

// sleeps notes that there is nothing to do.
func (a *Agent) sleeps() {
	a.awake = false
	a.tally.Become(counters.AgentAsleep)
}

// CountIn makes the agent count somewhere else. Call it before Start.
func (a *Agent) CountIn(t *counters.Agent) { a.tally, a.Count = t, t.Counts }

// since returns the time in nanoseconds since a stamp.
func (a *Agent) since(stamp uint32) uint64 { return uint64(a.stamp-stamp) << stampShift }

// seen notes that there is something that is not sent now.
func (l *OutLane) seen() {
	if l.held == 0 {
		l.held = l.domain.agent.now
	}
}

// noRoom counts that the connection takes no more.
func (l *OutLane) noRoom() {
	if l.End != nil {
		l.Row.Backpressure++
		l.seen()
	}
}

func (l *InLane) noRoom() {
	if l.End != nil && l.answers.Pending() > 0 {
		l.Row.Backpressure++
	}
}

// countGroup counts a group of requests that is sent.
func (l *OutLane) countGroup(g groupsend.Group) {
	n := uint64(g.Count)
	l.Row.Groups++
	l.Row.Requests += n
	l.Row.GroupSizes.Add(n)
	if l.held != 0 {
		l.Row.Queue.Add(uint64(l.domain.agent.now - l.held))
	}
}

// countAnswer counts the answer to a journalled request.
func (l *OutLane) countAnswer(e *entry, s slots.Status) {
	l.Row.Answers++
	if e.quiet {
		return
	}
	l.Row.Outcomes.Add(uint32(s))
	l.Row.Latency.Add(l.domain.agent.since(e.at))
}

// countOutcome counts that the recorded request in slot i has an answer.
func (l *InLane) countOutcome(i int, s slots.Status) {
	rec, took := &l.records[i], l.domain.agent.since(l.records[i].at)
	l.Row.Outcomes.Add(uint32(s))
	l.Row.Latency.Add(took)
	row := l.domain.rowOf(rec.method)
	row.Requests++
	row.Outcomes.Add(uint32(s))
	row.Latency.Add(took)
}

// countWait counts that a request is given to a process that had to wait for one.
func (l *InLane) countWait(rec *record) {
	a := l.domain.agent
	if rec.at != a.stamp {
		l.domain.rowOf(rec.method).Wait.Add(a.since(rec.at))
	}
}

// rowOf returns the row of the method that a request names.
func (d *Domain) rowOf(id uint32) *counters.Service {
	if m := d.Method(id); m != nil {
		return m.row
	}
	return d.agent.tally.OtherService
}

// CountMethod makes a registered method have a row of the file.
func (d *Domain) CountMethod(id uint32, row *counters.Service) {
	if m := d.Method(id); m != nil {
		m.row = row
	}
}

// uncount takes what is left in the lanes of a domain that is given up out of the gauges,
// which the lanes of the next memory share.
func (d *Domain) uncount() {
	for _, l := range d.OutLanes {
		l.Row.Busy -= uint64(l.busy)
		for i := range l.journal {
			if l.journal[i].taken {
				l.Row.BusySlots -= uint64(l.journal[i].word.Run())
			}
		}
	}
	for _, l := range d.InLanes {
		l.Row.Busy -= uint64(l.Busy)
		for i := range l.records {
			if l.records[i].active {
				l.Row.BusySlots -= uint64(l.records[i].run)
			}
		}
	}
}
