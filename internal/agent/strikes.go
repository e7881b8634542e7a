package agent

import (
	"maps"
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// StrikeRules say what follows from errors against the protocol. They are set before the
// agent knows the domain.
type StrikeRules struct {
	// Worker is how many offences of a worker, Domain how many damages, within
	// StrikeWindow are too many; 0 for no limit.
	Worker, Domain int
	// OnWorker is told once of a worker with too many offences, OnDomain of a domain with
	// too many damages and a process that lives although it is disconnected, at most once
	// in damageEvery. They must not block.
	OnWorker func(w *Worker, n int, last Misdeed)
	OnDomain func(lingering *Worker, n int)
}

const (
	// StrikeWindow is how long an error is held against anybody.
	StrikeWindow = 10 * time.Second
	// LingerGrace is how long a process that was disconnected may take to end before it
	// counts as one that stays: it may be large.
	LingerGrace = time.Second
	// damageEvery is how often a domain is reported that goes on being damaged.
	damageEvery = time.Second
)

// Misdeed says what an offence was.
type Misdeed string

// The offences of a worker.
const (
	BadMessage   Misdeed = "a message by its socket that makes no sense"
	badHint      Misdeed = "a hint of no request"
	badOperation Misdeed = "an operation that makes no sense"
	badTable     Misdeed = "a list of pieces that was changed"
	fullResults  Misdeed = "results of operations that do not fit"
	badSlots     Misdeed = "slots that make no sense, in memory that nobody else has"
	slowToWake   Misdeed = "being slow to wake"
)

// strikes counts errors.
type strikes struct {
	Total uint64
	window
	// told: somebody was told. quiet is until when nobody is to be told again.
	told  bool
	quiet int64
}

// add counts an error and returns how many there are in the window.
func (s *strikes) add(now int64) int {
	s.Total++
	return s.window.add(now)
}

// window counts the errors of StrikeWindow.
type window struct {
	// recent are those since began.
	recent int
	began  int64
}

// over reports whether nothing that it counts is held against anybody any more.
func (w *window) over(now int64) bool { return w.recent == 0 || now-w.began >= int64(StrikeWindow) }

// add counts an error and returns how many there are.
func (w *window) add(now int64) int {
	if w.over(now) {
		w.recent, w.began = 0, now
	}
	w.recent++
	return w.recent
}

// recentOf returns the window of a worker's process, which has one whatever it attaches as, and whenever: else one that says goodbye and
// attaches again, or has many attachments, could go on for ever.
func (d *Domain) recentOf(w *Worker, now int64) *window {
	if w.PID <= 0 { // whoever that is
		return &w.offences.window
	}
	have := d.offenders[w.PID]
	if have == nil {
		maps.DeleteFunc(d.offenders, func(_ int, have *window) bool { return have.over(now) })
		have = new(window)
		d.offenders[w.PID] = have
	}
	return have
}

// Offence counts an error that is worker w's for certain: it is in memory that only w
// has been given, or came by its socket.
func (d *Domain) Offence(w *Worker, what Misdeed) {
	d.agent.Count.Offences++
	now := shm.Nanotime()
	w.offences.Total++
	n := d.recentOf(w, now).add(now)
	if k := &d.Strikes; k.Worker > 0 && n >= k.Worker && !w.offences.told && !w.Gone && k.OnWorker != nil {
		w.offences.told = true
		k.OnWorker(w, n, what)
	}
}

// damage counts an error in the memory of a lane, which all workers of the domain can
// write to: owners and headers there say nothing about who it was. Only if a single
// process of the domain is left, and attached, and nothing is left that another one may
// have written before it died, it was that one. It was never this process, which writes what is
// right: a service in it is alone with the memory that another one has given to its children. here says that no peer
// can have done it: what a peer's daemon can write to are slots of lanes to and from it,
// and no words.
func (d *Domain) damage(here bool) {
	if here && !d.mixed && len(d.present) == 1 {
		if w := d.present[0]; !w.Gone && w.PID != ownPID && !d.parted.live(w.PID) {
			d.Offence(w, badSlots)
			return
		}
	}
	d.agent.Count.Damages++
	now := shm.Nanotime()
	n := d.Damages.add(now)
	k := &d.Strikes
	if k.Domain == 0 || n < k.Domain || now < d.Damages.quiet || k.OnDomain == nil {
		return
	}
	d.Damages.quiet = now + int64(damageEvery)
	if w := d.lingering(now); w != nil {
		k.OnDomain(w, n)
	}
}

// blank reports whether nothing waits or is under way in the rings: what comes from now on is of those who are present.
func (d *Domain) blank() bool {
	for _, l := range d.OutLanes {
		if l.busy > 0 {
			return false
		}
		for i := range l.journal {
			if l.Ring.Word(i).State() == slots.Pub {
				return false
			}
		}
	}
	for _, l := range d.InLanes {
		if l.Busy > 0 {
			return false
		}
	}
	return true
}

// lingering returns a worker that is disconnected and whose process does not end, or nil.
func (d *Domain) lingering(now int64) *Worker {
	for _, w := range d.present {
		if w.Gone && now-w.wentAt >= int64(LingerGrace) {
			return w
		}
	}
	return nil
}

// Disconnected is how many workers are, whose processes are not dead.
func (d *Domain) Disconnected() (n int) {
	for _, w := range d.present {
		if w.Gone {
			n++
		}
	}
	return n
}

// misused counts what is wrong with the request in slot i, whose word is w: once, however
// often it is looked at, which is Leave from then on. word: the words are wrong, and not only what is in the slots.
func (l *OutLane) misused(i int, w slots.Word, word bool) groupsend.Verdict {
	if l.blamed[i] == w {
		return groupsend.Leave
	}
	l.blamed[i] = w
	l.domain.agent.Count.ProtocolErrors++
	l.domain.damage(word || l.Local != nil)
	return groupsend.Refuse
}
