package agent

import (
	"math"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Joins notes that a client has a lane, and leaves that it uses no lane any more.
func (d *Domain) Joins(w *Worker, lane uint16) {
	bit := uint64(1) << (lane % 64)
	if l := d.outs[lane]; l != nil && !w.Gone && w.uses[lane/64]&bit == 0 {
		w.uses[lane/64] |= bit
		l.Sharing.Join()
	}
}

func (d *Domain) leaves(w *Worker) {
	for _, l := range d.OutLanes {
		if bit := uint64(1) << (l.id % 64); w.uses[l.id/64]&bit != 0 {
			w.uses[l.id/64] &^= bit
			if l.Sharing.Leave() {
				d.grown(l)
			}
		}
	}
}

// balance is a look at the shares of all rings that may need one; resting says that the agent
// has found nothing to do for a while, and that the next look may be far off.
func (d *Domain) balance(resting bool) {
	now := int64(math.MinInt64)
	for _, l := range d.OutLanes {
		if !l.Sharing.Due() {
			continue
		}
		if now == math.MinInt64 {
			now = shm.Nanotime()
		}
		if l.Sharing.Balance(now, &d.held, resting) {
			d.grown(l)
		}
	}
}

// wakeUsers wakes all who may wait for room in the lane, to look at its state.
func (l *OutLane) wakeUsers() {
	l.Ring.WakeFree()
	bit := uint64(1) << (l.id % 64)
	for _, w := range l.domain.present {
		if w.uses[l.id/64]&bit != 0 {
			l.domain.touch(w)
		}
	}
}

// grown wakes those who were above the share of a lane and may go on: those who wait for any
// free slot, and those who have had many.
func (d *Domain) grown(l *OutLane) {
	l.Ring.WakeFree()
	l.Sharing.Grow()
	bit := uint64(1) << (l.id % 64)
	for _, w := range d.present {
		if w.uses[l.id/64]&bit != 0 && l.Sharing.High(w.ID) {
			d.touch(w)
		}
	}
}

// freedFor wakes a worker for whose one-way messages, which have no answers that would wake
// it, n slots were freed: when that makes half of what it may hold, and when it has had more
// or may hold more, and none of them is left.
func (l *OutLane) freedFor(w *Worker, n int) {
	size := n * l.geo.SlotSize
	w.freed, w.freedBytes, w.untold = w.freed+n, w.freedBytes+size, true
	room := l.Sharing.Freed(w.ID, w.freed)
	if most := l.domain.mostBytes(w); most > 0 {
		last := w.postBytes == 0
		room = room || w.freedBytes >= most/2 && w.bytes <= most-most/2 || last && w.highBytes
		if last {
			w.highBytes = false
		}
	}
	if room {
		// SYNC POINT (room): the slots are free before the cycle's end looks who of those that were touched sleeps; pairs with
		// the client's sleepForRoom.
		l.domain.touch(w)
	}
}

// relieve wakes those who perhaps wait for room beside slow one-way messages: what quick ones have left is less than
// freedFor waits for, and no last message comes soon. It is for an agent that has nothing else to do.
func (d *Domain) relieve() {
	for _, w := range d.present {
		if w.untold && d.mayWait(w) {
			d.touch(w)
		}
	}
}

// mayWait reports whether a worker with one-way messages under way has had so much that it perhaps waits until it
// has less.
func (d *Domain) mayWait(w *Worker) bool {
	if w.highBytes && w.postBytes > 0 {
		return true
	}
	for _, l := range d.OutLanes {
		if l.Sharing.MayWait(w.ID) {
			return true
		}
	}
	return false
}

// mostBytes is the most bytes of slots that a worker may have in flight; 0 for no limit.
func (d *Domain) mostBytes(w *Worker) int {
	if w.Told {
		return w.MostBytes
	}
	return d.WorkerBytes
}

// beyondBytes is why a request is beyond what its worker may have in all its rings.
const beyondBytes = "more bytes of slots in flight than the process may have (limits.worker_bytes)"

// excess says why a published request is more than its worker may have, and counts
// it; "" if it is not.
func (l *OutLane) excess(i int, w slots.Word) string {
	d, owner := l.domain, l.domain.Workers[w.Owner()]
	why := l.Sharing.Excess(i, w)
	if why == "" && owner != nil {
		if most := d.mostBytes(owner); most > 0 && owner.bytes > 0 && owner.bytes+w.Run()*l.geo.SlotSize > most {
			why = beyondBytes
		}
	}
	if why != "" {
		d.agent.Count.OverLimit++
		if owner != nil {
			owner.overLimit++
		}
	}
	return why
}

// hold notes that the run of the journalled word w is in flight, or, with sign -1,
// that it is not any more.
func (l *OutLane) hold(w slots.Word, oneway bool, sign int) {
	l.Sharing.Add(w.Owner(), sign*w.Run(), oneway)
	owner := l.domain.Workers[w.Owner()]
	if owner == nil {
		return
	}
	size := sign * w.Run() * l.geo.SlotSize
	owner.bytes += size
	if oneway {
		owner.postBytes += size
	}
	// As sharing.Ring.High.
	if most := l.domain.mostBytes(owner); most > 0 && owner.bytes > min(most/2, most-l.domain.largestRun) {
		owner.highBytes = true
	}
}
