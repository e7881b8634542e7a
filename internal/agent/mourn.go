package agent

import (
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Absence is what the answering end of a lane is told of a caller that is gone: the
// requests of its that were sent and have no answer. One-way messages are not among
// them: they are to be executed.
type Absence struct {
	Lane   uint16
	Caller int
	Mirror uint64
	Sent   []SentRequest
}

// Mourn is called after Bury, and returns what the answering ends of the lanes that w had
// are to be told. died is when it was certain that the process is dead, by
// CLOCK_MONOTONIC; 0 if it has said goodbye. From then on the times are taken that its
// slots stay in use.
func (d *Domain) Mourn(w *Worker, died int64) (told []Absence, notices []Notice) {
	if died != 0 {
		delete(d.offenders, w.PID) // another process may have its id soon
		d.agent.Deaths.freed.Add(shm.Nanotime() - died)
		if d.mourned == nil {
			d.mourned = make(map[int]int64)
		}
		d.mourned[w.ID] = died
		d.consoling = true
	}
	for _, l := range d.OutLanes {
		had := w.used[l.id/64]&(1<<(l.id%64)) != 0
		if !had && l.Sharing.Taken(w.ID) == 0 {
			continue
		}
		a := l.absence(w.ID)
		if l.Local != nil {
			notices = append(notices, l.Local.Gone(uint16(w.ID), a.Sent)...)
		} else {
			told = append(told, a)
		}
	}
	return told, notices
}

// absence lists the requests of a caller that wait for answers.
func (l *OutLane) absence(caller int) Absence {
	a := Absence{Lane: l.id, Caller: caller, Mirror: l.Mirror.Load()}
	for i := range l.journal {
		if e := &l.journal[i]; e.taken && !e.oneway && !e.answered && e.word.Owner() == caller {
			a.Sent = append(a.Sent, SentRequest{i, e.word.Ticket()})
		}
	}
	return a
}

// Absences is absence for every caller that is gone: what the answering end may not have
// heard before the lane's connection was lost.
func (l *OutLane) Absences() (told []Absence) {
	for caller := range slots.MaxOwner + 1 {
		if l.Sharing.Taken(caller) > 0 && l.domain.Workers[caller] == nil {
			if a := l.absence(caller); len(a.Sent) > 0 {
				told = append(told, a)
			}
		}
	}
	return told
}

// console takes the times when the last slots of buried workers were free. It looks at every slot of the domain, so
// that is done once in a cycle at most, however many of their requests have ended in it.
func (d *Domain) console() {
	d.consoling = false
	var left CallerSet
	for _, l := range d.OutLanes {
		for id := range d.mourned {
			if l.Sharing.Taken(id) > 0 {
				left.add(uint16(id))
			}
		}
	}
	looked := false
	for id, died := range d.mourned {
		if left.Has(uint16(id)) {
			continue
		}
		if !looked {
			looked = true
			d.UnsettledIDs(&left) // something of theirs may still be to be sent
		}
		if !left.Has(uint16(id)) {
			delete(d.mourned, id)
			d.agent.Deaths.settled.Add(shm.Nanotime() - died)
		}
	}
}
