package daemon

import (
	"context"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// detach ends an attachment. What the worker held is cleaned up at once if it
// has said goodbye, else when the kernel says that the process is dead.
func (c *conductor) detach(w *worker) {
	c.mu.Lock()
	delete(c.attached, w)
	c.countWorkers()
	w.endTrace()
	hangup, served := shm.Nanotime(), false
	for _, m := range w.domain.methods {
		served = served || m.workers[w]
		delete(m.workers, w)
	}
	c.mu.Unlock()
	if served {
		c.directoryChanged()
	}
	w.lent.end(c.ctx.Err() != nil)
	defer w.closePidfd()
	if w.role == attach.RoleTool {
		return
	}
	if w.spiller != nil {
		c.mu.Lock()
		cut := w.bye || w.struck > 0
		c.mu.Unlock()
		w.spiller.end(cut)
	}
	d := w.domain
	faultpoint.Here("detach.begun")
	d.agent.Commands.Call(func() {
		w.view.Rings.Down.SetPager(nil)
		d.view.Detach(w.view)
	})
	if w.spiller != nil {
		w.spiller.running.Wait() // the agent starts no more; when its slots are free their lanes may be unmapped
	}
	w.pager.close() // its process has learnt of the end from its own end of the connection
	faultpoint.Here("detach.done")
	stop := c.rotateIfItStays(w)
	c.mu.Lock()
	// A core that has died may have had its goodbye. The word of one that was disconnected for what it has written
	// counts for nothing: it may go on writing.
	w.bye = w.struck == 0 && (w.bye || w.view.Rings.Departed())
	c.mu.Unlock()
	dead := w.bye || w.awaitDeath(d.alive)
	stop()
	c.mu.Lock()
	retired := d.retired
	c.mu.Unlock()
	if !dead && !retired {
		return // the core is stopping: nobody will use the slots again
	}
	c.bury(w, dead, hangup)
	c.freeRegions(w)
	faultpoint.Here("bury.freed")
	c.mu.Lock()
	delete(d.workers, w.id)
	d.keepNoMore(keyOf(kindWorker, d, w.id))
	c.mu.Unlock()
	c.mapping.Lock()
	if dead {
		_ = w.seg.Discard() // a process that has said goodbye may hold on to it
	}
	_ = w.seg.Close()
	c.mapping.Unlock()
	d.dropUnused()
	c.dispose(d)
	if !dead && !w.awaitDeath(c.ctx) {
		return
	}
	c.departed(w)
}

// bury has the agent free what a worker held that is certain not to touch it any more, and
// tells those who answer its requests. dead: its process is; if not, it has lost its domain's memory, as have all others of the
// domain. hangup is when its connection ended.
func (c *conductor) bury(w *worker, dead bool, hangup int64) {
	d, now, died := w.domain, shm.Nanotime(), int64(0)
	if dead && !w.bye {
		died = now
		atomic.AddUint64(&c.counts().WorkersDead, 1)
	}
	var told []agent.Absence
	var notices []agent.Notice
	d.agent.Commands.Call(func() {
		if w.bye {
			d.view.Part(w.view)
		}
		d.view.Bury(w.view)
		if died != 0 {
			d.agent.Deaths.Certain.Add(died - hangup)
		}
		told, notices = d.view.Mourn(w.view, died)
	})
	faultpoint.Here("bury.done")
	c.tellGone(d, told, notices)
	faultpoint.Here("bury.told")
}

// deathLook is how often a process is looked at whose end nobody can tell of.
const deathLook = time.Second

// awaitDeath returns true when the process is dead. A process that has closed
// its socket but lives keeps its slots, because it may still write to them. The
// wait is the Go poller's: a thread for each such process would be too much. It takes
// no descriptor, of which there may be none left just then.
// It returns false when ctx ends. One goroutine waits at a time.
func (w *worker) awaitDeath(ctx context.Context) bool {
	if w.pidfd < 0 {
		return true // a kernel without pidfds: the closed socket has to do
	}
	if w.death == nil {
		_ = unix.SetNonblock(w.pidfd, true) // else the poller does not take it, and the process is looked at
		w.death = os.NewFile(uintptr(w.pidfd), "pidfd")
	}
	f := w.death
	_ = f.SetReadDeadline(time.Time{}) // of an earlier wait
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	dead := false
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Read(func(uintptr) bool {
			dead = w.isDead()
			return dead
		})
	}
	if err != nil && ctx.Err() == nil {
		event.WorkerWatch.On(&w.domain.conductor.log).Err(err).Int("pid", w.pid).Msg("cannot be told of the end of a worker")
		for !dead && sleep(ctx, deathLook) {
			dead = w.isDead()
		}
	}
	return dead
}

// isDead reports whether the process is dead. The worker has a pidfd.
func (w *worker) isDead() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(w.pidfd), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}

func (w *worker) closePidfd() {
	switch {
	case w.death != nil:
		_ = w.death.Close()
	case w.pidfd >= 0:
		_ = unix.Close(w.pidfd)
	}
	w.death, w.pidfd = nil, -1
}
