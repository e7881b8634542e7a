package daemon

import (
	"time"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// strikeRules say what follows from errors against the protocol. They are set before the
// agent knows the domain.
type strikeRules struct {
	// worker is how many offences of a worker, domain how many damages, within
	// strikeWindow are too many; 0 for no limit.
	worker, domain int
	// onWorker is told once of a worker with too many offences, onDomain of a domain with
	// too many damages and a process that lives although it is disconnected, at most once
	// in damageEvery. They must not block.
	onWorker func(w *agentWorker, n int)
	onDomain func(lingering *agentWorker, n int)
}

const (
	// strikeWindow is how long an error is held against anybody.
	strikeWindow = 10 * time.Second
	// lingerGrace is how long a process that was disconnected may take to end before it
	// counts as one that stays: it may be large.
	lingerGrace = time.Second
	// damageEvery is how often a domain is reported that goes on being damaged.
	damageEvery = time.Second
)

// strikes counts errors.
type strikes struct {
	total uint64
	// recent are those since began, which is less than strikeWindow ago.
	recent int
	began  int64
	// told: somebody was told. quiet is until when nobody is to be told again.
	told  bool
	quiet int64
}

// add counts an error and returns how many there are in the window.
func (s *strikes) add(now int64) int {
	s.total++
	if s.recent == 0 || now-s.began >= int64(strikeWindow) {
		s.recent, s.began = 0, now
	}
	s.recent++
	return s.recent
}

// offence counts an error that is worker w's for certain: it is in memory that only w
// has been given, or came by its socket.
func (d *agentDomain) offence(w *agentWorker) {
	d.agent.count.Offences++
	n := w.offences.add(shm.Nanotime())
	if k := &d.strikes; k.worker > 0 && n >= k.worker && !w.offences.told && !w.gone && k.onWorker != nil {
		w.offences.told = true
		k.onWorker(w, n)
	}
}

// damage counts an error in the memory of a lane, which all workers of the domain can
// write to: owners and headers there say nothing about who it was. Only if a single
// process of the domain is left, and attached, it was that one. here says that no peer
// can have done it: what a peer's daemon can write to are slots of lanes to and from it,
// and no words.
func (d *agentDomain) damage(here bool) {
	if here && len(d.present) == 1 && !d.present[0].gone {
		d.offence(d.present[0])
		return
	}
	d.agent.count.Damages++
	now := shm.Nanotime()
	n := d.damages.add(now)
	k := &d.strikes
	if k.domain == 0 || n < k.domain || now < d.damages.quiet || k.onDomain == nil {
		return
	}
	d.damages.quiet = now + int64(damageEvery)
	if w := d.lingering(now); w != nil {
		k.onDomain(w, n)
	}
}

// lingering returns a worker that is disconnected and whose process does not end, or nil.
func (d *agentDomain) lingering(now int64) *agentWorker {
	for _, w := range d.present {
		if w.gone && now-w.wentAt >= int64(lingerGrace) {
			return w
		}
	}
	return nil
}

// disconnected is how many workers are, whose processes are not dead.
func (d *agentDomain) disconnected() (n int) {
	for _, w := range d.present {
		if w.gone {
			n++
		}
	}
	return n
}

// misused counts what is wrong with the request in slot i, whose word is w: once, however
// often it is looked at, which is Leave from then on. word: the words are wrong, and not only what is in the slots.
func (l *outLane) misused(i int, w slots.Word, word bool) groupsend.Verdict {
	if l.blamed[i] == w {
		return groupsend.Leave
	}
	l.blamed[i] = w
	l.domain.agent.count.ProtocolErrors++
	l.domain.damage(word || l.local != nil)
	return groupsend.Refuse
}
