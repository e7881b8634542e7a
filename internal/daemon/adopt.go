package daemon

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/depot"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/printable"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// adopt makes the domain what it was when the last core ended. Nothing of it is served
// yet, and its agent knows it already.
func (d *domain) adopt(left *domainLeft) {
	d.lastID, d.lastLane, d.generation = left.LastID, left.LastLane, left.Rotation
	d.regions.base, d.regions.lastGeneration = left.LastGeneration, left.LastGeneration
	for n, m := range left.methods {
		d.methods[methodKey{m.Service, m.Method}] = &method{id: m.ID, answer: m.Answer, workers: make(map[*worker]bool)}
		d.nextMethod = max(d.nextMethod, n+1)
	}
	if d.conductor.tenancy.expecting.Load() {
		d.expectMethods()
	}
	d.adoptOutcasts(left.outcasts)
	d.dropFormer(left)
	for i := range left.workers {
		if err := d.adoptWorker(&left.workers[i]); err != nil {
			event.WorkerNotAdopted.On(&d.conductor.log).Err(err).Str("domain", d.name).Int("worker", left.workers[i].n).Msg("worker not adopted")
			d.conductor.keepNoMore(left.workers[i].item.Key)
		}
	}
	freed := d.adoptRegions(left.regions)
	d.adoptLanes(left.lanes)
	d.adoptOps()
	// The requests that refer to them do not hold them any more: peers have forgotten the
	// regions, and their handlers' operations have ended.
	for _, r := range freed {
		r.freeing = false
		r.free()
	}
}

// dropFormer drops what is left of a memory that the domain has no more: the last core died, or handed over, when it had kept the new one
// and had not dropped all of the old.
func (d *domain) dropFormer(left *domainLeft) {
	former, keys := domainLeft{}, []string(nil)
	isFormer := func(item *depot.Item, rotation int) bool {
		if rotation == left.Rotation {
			return false
		}
		keys = append(keys, item.Key)
		return true
	}
	left.workers = slices.DeleteFunc(left.workers, func(l leftover[workerMeta]) bool {
		is := isFormer(l.item, l.meta.Rotation)
		if is {
			former.workers = append(former.workers, l)
		}
		return is
	})
	left.regions = slices.DeleteFunc(left.regions, func(l leftover[regionMeta]) bool { return isFormer(l.item, l.meta.Rotation) })
	left.lanes = slices.DeleteFunc(left.lanes, func(l leftover[laneMeta]) bool { return isFormer(l.item, l.meta.Rotation) })
	former.farewell(fmt.Sprintf("the memory of domain %s was damaged; attach again", d.name))
	for _, key := range keys {
		d.conductor.keepNoMore(key)
	}
}

// adoptOps lets the agent take operations of adopted workers, when it knows the calls that
// they are for.
func (d *domain) adoptOps() {
	c := d.conductor
	c.mu.Lock()
	workers := slices.Collect(maps.Values(d.workers))
	c.mu.Unlock()
	d.agent.Commands.Call(func() {
		for _, w := range workers {
			if w.opsLeft != nil {
				w.view.Ops, w.opsLeft = w.opsLeft, nil
				d.bells.MarkWorker(w.id)
			}
		}
	})
}

// adoptWorker makes a process a worker that was one.
func (d *domain) adoptWorker(l *leftover[workerMeta]) (err error) {
	c, m := d.conductor, &l.meta
	w := &worker{
		domain: d, id: l.n, role: m.Role, name: m.Name, handlers: m.Handlers, pid: m.PID, uid: m.UID, gid: m.GID, abi: m.ABI,
		adopted: true, bye: m.Bye, welcomed: m.Welcomed, serves: m.Serves, withdrawn: m.Withdrawn, struck: m.Struck,
		given: make(map[uint16]bool), asks: make(chan struct{}, askPlaces), asking: make(map[uint64]bool), gone: make(chan struct{}),
	}
	if w.id < 1 || w.role != attach.RoleClient && w.role != attach.RoleService {
		return fmt.Errorf("%w: role %q, id %d", errKept, printable.Text(string(w.role)), w.id)
	}
	if w.conn, err = connOf(take(l.item, 1)); err != nil {
		return err
	}
	if w.seg, err = shm.Adopt(take(l.item, 0), slots.WorkerSegmentSize); err != nil {
		return errors.Join(err, w.conn.Close())
	}
	w.pidfd = take(l.item, 2)
	w.resume(m)
	serves, rows := d.enlistAdopted(w)
	d.agent.Commands.Call(func() {
		d.view.AddWorker(w.view)
		for i, id := range serves {
			d.view.Register(id, w.view)
			d.view.CountMethod(id, rows[i])
		}
		// What the dead agent had staged and not shown is found in the slot words, by
		// the worker and by this agent.
		w.view.Rings.SetOverflow()
		w.view.Rings.Down.Ring()
		d.bells.MarkWorker(w.id)
	})
	c.adopted = append(c.adopted, w)
	faultpoint.Here("adopt.worker")
	return nil
}

// resume makes what the agent is to know of an adopted worker, of which its last core has kept m.
func (w *worker) resume(m *workerMeta) {
	w.view = &agent.Worker{ID: w.id, PID: w.pid, Name: w.name, Stale: true, Withdrawn: w.withdrawn, Rings: slots.ResumeWorkerRings(w.seg.Bytes())}
	w.bytes = w.domain.conductor.live().Limits.WorkerBytes
	if m.Bytes != nil {
		w.bytes = *m.Bytes
	}
	w.view.Told, w.view.MostBytes = true, w.bytes
	w.makePager()
	if w.role == attach.RoleClient {
		w.spiller = newSpiller(w)
		w.view.Spill = w.spiller.start
	}
	if w.role == attach.RoleService {
		ring := slots.ResumeOpRing(w.seg.Bytes())
		w.view.Handlers = min(max(w.handlers, 0), slots.HintEntries)
		w.opsLeft, w.opsTaken = &agent.WorkerOps{Ring: ring}, ring.Taken()
	}
}

// enlistAdopted enters an adopted worker, and returns the methods that it serves with their counters.
func (d *domain) enlistAdopted(w *worker) (serves []uint32, rows []*counters.Service) {
	c := d.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	d.workers[w.id] = w
	c.attached[w] = struct{}{}
	c.countWorkers()
	if w.struck > 0 {
		c.castOut(w)
	}
	for key, method := range d.methods {
		if n := d.view.MethodNumber(method.id); n/8 < len(w.serves) && w.serves[n/8]&(1<<(n%8)) != 0 {
			if !w.withdrawn {
				method.workers[w] = true
			}
			serves = append(serves, method.id)
			rows = append(rows, d.rowFor(key))
		}
	}
	return serves, rows
}

// serveAdopted goes on with an attachment that another core has begun.
func (c *conductor) serveAdopted(w *worker) {
	defer c.farewell(w.conn)()
	c.identifyFor(w)
	var err error
	if !w.welcomed {
		// Whether it has had it is not known. A second one does no harm.
		err = c.welcomeWorker(w, 0)
		w.mu.Unlock() // see open
	}
	c.mu.Lock()
	struck := w.struck > 0
	c.mu.Unlock()
	if struck {
		w.dismiss(w.offended()) // the last core may have had no time to
		c.converse(w)
		return
	}
	if err == nil {
		err = w.conn.Send(&attach.Message{Type: attach.TypeResumed, Resumed: &attach.Resumed{OpsTaken: w.opsTaken, HoldMillis: max(c.holdMillis(), 1)}}, w.pager.descriptors()...)
	}
	w.pager.sent()
	faultpoint.Here("adopt.resumed")
	if err != nil {
		w.untold(err) // else it would wait for this core for ever
	}
	c.converse(w)
}

// have deals with what an adopted worker has. What it is sent meanwhile does not matter:
// it knows what it has. It says so once for each core that has told it of itself: what a
// core that died soon after that had not read comes first, and is still true, because the
// worker had asked nothing since that anybody has answered.
func (c *conductor) have(w *worker, m *attach.Message) error {
	d := w.domain
	c.mu.Lock()
	var known, gone []*laneInfo
	if m.Have != nil {
		for _, id := range m.Have.Lanes {
			if l := d.lanes[id]; l != nil {
				known = append(known, l)
			} else {
				gone = append(gone, &laneInfo{Lane: attach.Lane{ID: id}})
			}
		}
	}
	c.mu.Unlock()
	if !w.adopted || m.Have == nil {
		return fmt.Errorf("%w: a have message out of turn", attach.ErrInvalid)
	}
	w.mu.Lock()
	known = slices.DeleteFunc(known, func(l *laneInfo) bool {
		// Who withholds it asks afterwards whether w has it.
		l.mu.RLock()
		defer l.mu.RUnlock()
		if l.gone {
			gone = append(gone, l)
			return true
		}
		w.given[l.ID] = true
		return false
	})
	w.mu.Unlock()
	if w.role == attach.RoleClient {
		d.agent.Commands.Do(func() {
			for _, l := range known {
				d.view.Joins(w.view, l.ID)
			}
		})
	}
	faultpoint.Here("adopt.had")
	c.freeUntold(w, m.Have)
	// It is no question, and takes no room of the domain's.
	if err := w.takePlace(); err != nil {
		return err
	}
	// Not from here: a worker that is sending does not read.
	return c.beside(func() {
		defer func() { <-w.asks }()
		for _, l := range gone {
			w.tellClosed(l)
		}
		if w.role == attach.RoleService {
			w.giveAll()
		}
	})
}
