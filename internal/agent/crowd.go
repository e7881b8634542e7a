package agent

import "time"

// crowd notices that a method has several callers.
type crowd struct {
	last  caller
	since int64 // when a request came that was not the last one's caller's
}

// crowdTime is how long a method counts as one with several callers, and over how
// long callers are judged.
const crowdTime = 100 * time.Millisecond

// note takes down a request of c.
func (m *crowd) note(c caller, now int64) {
	if m.last != c {
		if m.last.lane != nil {
			m.since = now
		}
		m.last = c
	}
}

// is reports whether more than one process calls the method.
func (m *crowd) is(now int64) bool { return m.since != 0 && now-m.since < int64(crowdTime) }

// callerUse is what one caller makes of this node: the bytes of the slots that
// processes have of it, those that it has under way, whoever has them, the most of
// those since callers were last judged, and its requests since then.
type callerUse struct{ given, open, most, requests uint32 }

const (
	// Besides what its handlers can work on, a process is given more requests, so
	// that it has something to go on with until the agent's next look: the more
	// the better, but all callers wait behind them. So they are few while callers
	// that never have much under way make a good part of the requests, one in
	// modestPart.
	spareRoom   = 512
	shortRoom   = 16
	modestPart  = 16
	muchBytes   = 2048
	callerBytes = 1024 // what each caller may have however full a process is
	// While callers are alike, none with more than likePart times as much under way as any
	// other, they get as much in the order in which they come. Then a process may have what it
	// ends within aheadTime, which is how long somebody who comes now may wait.
	likePart  = 2
	aheadTime = 4 * time.Millisecond
)

// room reports whether w should be given another request of c. While a method has
// one caller, what waits may wait in the process: only the order among callers makes
// waiting here worth the agent's while.
func (m *Method) room(w *Worker, c caller, d *Domain) bool {
	if !m.crowd.is(d.now) || w.Handlers == 0 {
		return true
	}
	// What its ring of hints has no room for waits in the queue, in front of everybody's turns.
	if d.alike && w.outstanding+m.queue.len() < w.Handlers+w.ahead {
		return true
	}
	spare := spareRoom
	if d.modest {
		spare = shortRoom
	}
	return w.outstanding < w.Handlers+spare || int(c.lane.callers[c.id].given) < callerBytes*len(m.workers)
}

// judge decides, now and then, whether callers that never have much under way make a
// good part of the requests, whether all are alike, and what each process ends within
// aheadTime.
func (d *Domain) judge() {
	past := d.now - d.judged
	if past < int64(crowdTime) {
		return
	}
	d.judged = d.now
	modest, all := 0, 0
	least, most := ^uint32(0), uint32(0)
	for _, l := range d.InLanes {
		for i := range l.callers[:l.lastCaller+1] {
			u := &l.callers[i]
			all += int(u.requests)
			if u.most <= muchBytes {
				modest += int(u.requests)
			}
			if u.most > 0 {
				least, most = min(least, u.most), max(most, u.most)
			}
			u.most, u.requests = u.open, 0
		}
	}
	d.modest = modest > 0 && modest*modestPart >= all
	d.alike = uint64(most) <= likePart*uint64(least)
	for _, w := range d.present {
		w.ahead = int(int64(w.ended) * int64(aheadTime) / past)
		w.ended = 0
	}
}

// opened notes that the request in slot i is under way, and closed that it is not any
// more.
func (l *InLane) opened(i int) {
	from := l.records[i].from
	u := &l.callers[from]
	u.requests++
	u.open += uint32(l.cost(i))
	u.most = max(u.most, u.open)
	l.lastCaller = max(l.lastCaller, from)
}

func (l *InLane) closed(i int) { l.callers[l.records[i].from].open -= uint32(l.cost(i)) }

// assign notes that a process has the request in slot i, and unassign that none has
// it any more.
func (l *InLane) assign(i int, w *Worker) {
	rec := &l.records[i]
	rec.worker = uint16(w.ID)
	l.kept.Assign(i, rec.worker)
	l.callers[rec.from].given += uint32(l.cost(i))
}

func (l *InLane) unassign(i int) {
	rec := &l.records[i]
	if rec.worker != 0 {
		rec.worker = 0
		l.kept.Assign(i, 0)
		l.callers[rec.from].given -= uint32(l.cost(i))
	}
}
