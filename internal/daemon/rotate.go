package daemon

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
)

// A mapping cannot be taken back. When a process goes on writing to the memory of its
// domain after it was disconnected, the domain gets other memory: a new domain segment,
// bell, worker segments and lanes, for all who attach from then on. The old memory ends
// with an outcome for everything in it, and its workers are told to attach again. See
// docs/decisions/0018-strikes.md.

const (
	// flushTime bounds how long peers wait for the last answers of a retired domain.
	flushTime = 200 * time.Millisecond
	// maxHeld is how many times a domain may get new memory while processes live that
	// were disconnected before: they keep the old in use, whatever this node does.
	maxHeld = 4
)

// use keeps the memory of the domain's lanes mapped until using is unlocked. False: the
// domain is retired.
func (d *domain) use() bool {
	d.using.RLock()
	if d.isRetired() {
		d.using.RUnlock()
		return false
	}
	return true
}

func (d *domain) isRetired() bool {
	d.conductor.mu.Lock()
	defer d.conductor.mu.Unlock()
	return d.retired
}

// offend counts an offence that came by the worker's socket.
func (w *worker) offend() {
	if d := w.domain; w.view != nil {
		d.agent.Commands.Call(func() {
			d.agent.Count.ProtocolErrors++
			d.view.Offence(w.view, agent.BadMessage)
		})
	}
}

// strikeOut disconnects a worker that has n offences, of which it says what the last one was. A service in the core stays: it is this
// process that would be kept out, and the core, which ends without the service, with it.
func (c *conductor) strikeOut(d *domain, view *agent.Worker, n int, last agent.Misdeed) {
	c.mu.Lock()
	w := d.workers[view.ID]
	if w == nil || w.view != view || w.struck > 0 || w.own() {
		c.mu.Unlock()
		return
	}
	w.struck = n
	c.castOut(w)
	if d.retired { // just now: what is kept of its workers is gone
		w.keepOutcast()
	} else {
		w.keepWorkerChange() // before its connection ends: the next core is not to believe it either
	}
	c.mu.Unlock()
	atomic.AddUint64(&c.counts().StruckOut, 1)
	why := w.offended()
	event.WorkerStruckOut.On(&c.log).Int("worker", w.id).Str("name", w.name).Int("pid", w.pid).Str("domain", d.name).Str("last", string(last)).Msg("worker disconnected: " + why)
	w.dismiss(why)
}

// offended says why a worker is disconnected that has struck offences.
func (w *worker) offended() string {
	return fmt.Sprintf("process %d has broken the protocol %d times within %s (limits.strikes)", w.pid, w.struck, agent.StrikeWindow)
}

// castOut keeps the process of a worker that was disconnected for its offences from attaching again, until departed. mu is held.
func (c *conductor) castOut(w *worker) {
	if w.canBeCastOut() {
		c.outcasts[w.pid]++
	}
}

// own reports whether the worker is a service in the core.
func (w *worker) own() bool { return w.pid == ownPID }

// canBeCastOut: not who has no number here, being of another namespace, nor this process, of which an earlier core may have left the number.
func (w *worker) canBeCastOut() bool { return w.pid > 0 && !w.own() }

// dismiss ends the attachment, whose serveWorker cleans up. A worker that does not read
// is not waited for.
func (w *worker) dismiss(why string) {
	_ = w.conn.Offer(&attach.Message{Type: attach.TypeGoodbye, Reason: why})
	w.hangUp()
}

// hangUp ends the attachment without a word.
func (w *worker) hangUp() {
	w.ended.Store(true)
	_ = w.conn.Close()
}

// rotateIfItStays sees to it that a worker that was disconnected for its offences and lives on
// loses its memory, unless stop is called before.
func (c *conductor) rotateIfItStays(w *worker) (stop func() bool) {
	c.mu.Lock()
	struck := w.struck
	c.mu.Unlock()
	if struck == 0 || c.live().Limits.DomainStrikes == 0 {
		return func() bool { return false }
	}
	return time.AfterFunc(agent.LingerGrace, func() {
		c.spawn(func() { c.rotate(w.domain, w.pid) })
	}).Stop
}

// damaged gives a domain new memory that has n damages, probably by the worker that
// lingers.
func (c *conductor) damaged(d *domain, lingering *agent.Worker, n int) {
	event.DomainDamaged.On(&c.log).Str("domain", d.name).Int("pid", lingering.PID).Int("errors", n).Msg("the memory of a domain is damaged while a process has it that was disconnected")
	c.rotate(d, lingering.PID)
}

// rotate gives a domain new memory because of what a process does to it.
func (c *conductor) rotate(d *domain, culprit int) {
	c.rotating.Lock()
	defer c.rotating.Unlock()
	if !c.mayRotate(d) {
		return
	}
	next, err := c.newDomain(*d.policy.Load(), d.agent, nil)
	if err != nil {
		event.DomainKeepsMemory.On(&c.log).Err(err).Str("domain", d.name).Msg("the domain keeps its memory")
		return
	}
	why := fmt.Sprintf("the memory of domain %s was damaged by process %d; attach again", d.name, culprit)
	event.DomainNewMemory.On(&c.log).Str("domain", d.name).Int("pid", culprit).Msg(why)
	ends, workers := c.replace(d, next, why)
	atomic.AddUint64(&c.counts().Rotations, 1)
	d.end()
	for _, w := range workers {
		c.spawn(func() { w.dismiss(why) })
	}
	for end := time.Now().Add(flushTime); time.Now().Before(end); {
		flushed := false
		d.agent.Commands.Call(func() { flushed = d.view.Flushed() })
		if flushed || !sleep(c.ctx, drainStep) {
			break
		}
	}
	d.agent.Commands.Call(func() { ends = append(ends, d.view.CutOff()...) })
	c.mu.Lock()
	d.cut = true
	lanes := maps.Clone(d.lanes) // one that is closing may still be dropped
	c.mu.Unlock()
	d.tellEndings(ends, lanes, why)
	c.directoryChanged()
	c.dispose(d)
}

// tellEndings tells peers that their connections to a domain's old memory have ended, each beside the others, and waits for none: one
// that does not read keeps nobody else from hearing of it, nor other domains from new memory.
func (d *domain) tellEndings(ends []agent.Ending, lanes map[uint16]*laneInfo, why string) {
	bySession := make(map[*session][]agent.Ending)
	for _, e := range ends {
		if lanes[e.Lane] != nil {
			s := sessionOf(e.Conn)
			bySession[s] = append(bySession[s], e)
		}
	}
	for _, ends := range bySession {
		d.conductor.spawn(func() {
			for _, e := range ends {
				d.tellBroken(e.Conn, lanes[e.Lane], e.Incoming, why)
			}
		})
	}
}

// mayRotate reports whether a domain may get new memory. It may not for ever as long as
// processes have the old: each time costs memory that nobody can take from them.
func (c *conductor) mayRotate(d *domain) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.retired || c.draining || c.ctx.Err() != nil {
		return false
	}
	held := 0
	for old := range c.held {
		if old.name == d.name {
			held++
		}
	}
	if held >= maxHeld {
		if !d.stuck {
			d.stuck = true
			event.DomainMemoryHeld.On(&c.log).Str("domain", d.name).Int("generations", held).Msg("the domain keeps its damaged memory: processes that were disconnected hold too much of its old memory; end them")
		}
		return false
	}
	return true
}

// replace puts next in the place of d. What is under way in d has its outcome when it
// returns. It returns the connections that have ended and the workers to be told.
func (c *conductor) replace(d, next *domain, why string) (ends []agent.Ending, workers []*worker) {
	d.making.Lock()
	defer d.making.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	// No number comes back that somebody may still know something else by. Methods keep
	// theirs: peers have them.
	next.generation = d.generation + 1
	next.lastID, next.lastLane = d.lastID, d.lastLane
	next.regions.base, next.regions.lastGeneration = d.regions.lastGeneration, d.regions.lastGeneration
	for k, m := range d.methods {
		next.methods[k] = &method{id: m.id, answer: m.answer, workers: make(map[*worker]bool)}
	}
	next.nextMethod = d.nextMethod
	for _, w := range d.workers {
		w.keepOutcast() // first: a core that dies in between has kept it out in one way or the other
	}
	// From here on a later core finds the new memory, and drops what it finds of the old: see dropFormer. Before, it finds the old one as it
	// was: what is under way there gets its outcome afterwards, as handlers go on in slots that are free then.
	c.keep(domainKey(d.name), next.meta(), next.seg.FD(), next.bell.FD())
	faultpoint.Here("rotate.kept")
	d.agent.Commands.Call(func() {
		ends = d.view.Retire(why)
		next.view.OutOfService = d.view.OutOfService
		next.view.Expecting = c.tenancy.expecting.Load() // settle changes it under c.mu, before it looks for domains
		d.agent.Domains = append(d.agent.Domains, next.view)
	})
	faultpoint.Here("rotate.retired")
	for id, w := range d.workers {
		c.keepNoMore(keyOf(kindWorker, d, id))
		if _, ok := c.attached[w]; ok {
			workers = append(workers, w) // it gives the memory up when it is told
			continue
		}
		w.holds = true
		d.holders++
	}
	for id := range d.lanes {
		c.keepNoMore(keyOf(kindLane, d, int(id)))
	}
	for _, r := range d.regions.list {
		if r != nil {
			c.keepNoMore(r.key())
		}
	}
	d.retired = true
	c.retired[d] = struct{}{}
	if d.holders > 0 {
		c.held[d] = struct{}{}
	}
	var list []*domain
	for _, have := range c.allDomains() {
		if have == d {
			have = next
		}
		list = append(list, have)
	}
	c.domains.Store(&list)
	c.notify()
	return ends, workers
}

// departed notes that the process of a detached worker is dead.
func (c *conductor) departed(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case w.struck > 0 && w.canBeCastOut():
		if c.outcasts[w.pid]--; c.outcasts[w.pid] == 0 {
			delete(c.outcasts, w.pid)
			c.keepNoMore(w.outcastKey())
		}
	case w.struck > 0 && w.own(): // an outcast of an earlier core, which had the number
		c.keepNoMore(w.outcastKey())
	}
	if d := w.domain; w.holds {
		if d.holders--; d.holders == 0 {
			delete(c.held, d)
		}
	}
}

// dispose unmaps a retired domain that nothing of this process uses any more.
func (c *conductor) dispose(d *domain) {
	c.mu.Lock()
	_, waits := c.retired[d]
	done := waits && d.cut && len(d.workers) == 0
	for _, r := range d.regions.list {
		done = done && r == nil
	}
	if done {
		delete(c.retired, d)
	}
	lanes := slices.Collect(maps.Values(d.lanes))
	c.mu.Unlock()
	if !done {
		return
	}
	// What a process has asked for before it was detached may be about to give it one.
	for _, l := range lanes {
		l.withhold()
	}
	d.using.Lock()
	defer d.using.Unlock()
	if err := d.agent.Poll.Remove(d.bell.FD()); err != nil {
		event.BellDeaf.On(&c.log).Err(err).Str("domain", d.name).Msg("a bell that is not heard any more")
	}
	d.close()
	c.log.Debug().Str("domain", d.name).Msg("the old memory of the domain is unmapped")
}
