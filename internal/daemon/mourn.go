package daemon

import (
	"github.com/rdmad/rdmad/shm"
)

// absence is what the answering end of a lane is told of a caller that is gone: the
// requests of its that were sent and have no answer. One-way messages are not among
// them: they are to be executed.
type absence struct {
	lane   uint16
	caller int
	mirror uint64
	sent   []sentRequest
}

// mourn is called after bury, and returns what the answering ends of the lanes that w had
// are to be told. died is when it was certain that the process is dead, by
// CLOCK_MONOTONIC; 0 if it has said goodbye. From then on the times are taken that its
// slots stay in use.
func (d *agentDomain) mourn(w *agentWorker, died int64) (told []absence, notices []notice) {
	if died != 0 {
		d.agent.deaths.freed.add(shm.Nanotime() - died)
		if d.mourned == nil {
			d.mourned = make(map[int]int64)
		}
		d.mourned[w.id] = died
		d.consoled(w.id)
	}
	for _, l := range d.outLanes {
		had := w.used[l.id/64]&(1<<(l.id%64)) != 0
		if !had && l.sharing.taken[w.id] == 0 {
			continue
		}
		a := l.absence(w.id)
		if l.local != nil {
			notices = append(notices, l.local.gone(uint16(w.id), a.sent)...)
		} else {
			told = append(told, a)
		}
	}
	return told, notices
}

// absence lists the requests of a caller that wait for answers.
func (l *outLane) absence(caller int) absence {
	a := absence{lane: l.id, caller: caller, mirror: l.mirror.Load()}
	for i := range l.journal {
		if e := &l.journal[i]; e.taken && !e.oneway && !e.answered && e.word.Owner() == caller {
			a.sent = append(a.sent, sentRequest{i, e.word.Ticket()})
		}
	}
	return a
}

// absences is absence for every caller that is gone: what the answering end may not have
// heard before the lane's connection was lost.
func (l *outLane) absences() (told []absence) {
	for caller := range l.sharing.taken {
		if l.sharing.taken[caller] > 0 && l.domain.workers[caller] == nil {
			if a := l.absence(caller); len(a.sent) > 0 {
				told = append(told, a)
			}
		}
	}
	return told
}

// consoled takes the time when the last slot of a buried worker is free.
func (d *agentDomain) consoled(id int) {
	died, ok := d.mourned[id]
	if !ok {
		return
	}
	for _, l := range d.outLanes {
		if l.sharing.taken[id] > 0 {
			return
		}
	}
	if d.unsettled(id) {
		return // something of its is still to be sent
	}
	delete(d.mourned, id)
	d.agent.deaths.settled.add(shm.Nanotime() - died)
}
