package daemon

import (
	"context"
	"errors"
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
// has said goodbye, else when the kernel says that the process is dead, or when it says so later.
func (c *conductor) detach(w *worker) {
	hangup := shm.Nanotime()
	c.delist(w)
	defer w.closePidfd()
	if w.role == attach.RoleTool {
		return
	}
	w.endService()
	gone, certain := c.awaitEnd(w)
	if !certain {
		return // the core is stopping: nobody will use the slots again
	}
	c.bury(w, gone, hangup)
	c.giveBack(w, gone)
	if gone || w.awaitDeath(c.ctx, nil) {
		c.departed(w)
	}
}

// delist takes a worker out of the lists of those that are attached, and serve something.
func (c *conductor) delist(w *worker) {
	c.mu.Lock()
	delete(c.attached, w)
	c.countWorkers()
	w.endTrace()
	served := false
	for _, m := range w.domain.methods {
		served = served || m.workers[w]
		delete(m.workers, w)
	}
	c.mu.Unlock()
	if served {
		c.directoryChanged()
	}
	w.lent.end(c.ctx.Err() != nil)
}

// endService ends what the agent and others do for a worker.
func (w *worker) endService() {
	d := w.domain
	if w.spiller != nil {
		d.conductor.mu.Lock()
		cut := w.bye || w.struck > 0
		d.conductor.mu.Unlock()
		if w.spiller.stop(); cut {
			w.spiller.end(true)
		}
	}
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
}

// awaitEnd waits until nobody is to touch what a worker has, which is certain if its process is gone, or the memory is not the domain's
// any more.
func (c *conductor) awaitEnd(w *worker) (gone, certain bool) {
	d := w.domain
	stop := c.rotateIfItStays(w)
	later := w.hasLeft
	if !w.ended.Load() {
		later = nil // the library says goodbye before it closes its end: what such a process writes afterwards is none
	}
	gone = w.hasLeft() || w.awaitDeath(d.alive, later)
	stop()
	c.mu.Lock()
	bye, retired := w.bye, d.retired
	c.mu.Unlock()
	if w.spiller != nil {
		w.spiller.end(bye)
	}
	return gone, gone || retired
}

// hasLeft reports whether the worker has said that it touches its slots no more. It may do so when its connection has ended, and a core that
// has died may have had its goodbye. The word of one that was disconnected for what it has written counts for nothing: it may go
// on writing.
func (w *worker) hasLeft() bool {
	c := w.domain.conductor
	c.mu.Lock()
	defer c.mu.Unlock()
	w.bye = w.struck == 0 && (w.bye || w.view.Rings.Departed())
	return w.bye
}

// giveBack gives up the memory and the id of a worker that is buried. gone: nobody is to touch the memory any more.
func (c *conductor) giveBack(w *worker, gone bool) {
	d := w.domain
	c.freeRegions(w)
	faultpoint.Here("bury.freed")
	c.mu.Lock()
	delete(d.workers, w.id)
	d.keepNoMore(keyOf(kindWorker, d, w.id))
	c.mu.Unlock()
	c.mapping.Lock()
	if gone {
		_ = w.seg.Discard() // a process that has said goodbye may hold on to it
	}
	_ = w.seg.Close()
	c.mapping.Unlock()
	d.dropUnused()
	c.dispose(d)
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

// deathLook is how often a process is looked at whose end nobody can tell of, or that may say that it has left.
const deathLook = time.Second

// awaitDeath returns true when the process is dead, or left, if there is that, says so. A process that has closed
// its socket but lives keeps its slots, because it may still write to them. The
// wait is the Go poller's: a thread for each such process would be too much. It takes
// no descriptor, of which there may be none left just then.
// It returns false when ctx ends. One goroutine waits at a time.
func (w *worker) awaitDeath(ctx context.Context, left func() bool) bool {
	if w.pidfd < 0 {
		return true // a kernel without pidfds: the closed socket has to do
	}
	if w.death == nil {
		_ = unix.SetNonblock(w.pidfd, true) // else the poller does not take it, and the process is looked at
		w.death = os.NewFile(uintptr(w.pidfd), "pidfd")
	}
	f := w.death
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	dead := false
	raw, err := f.SyscallConn()
	for err == nil && !dead {
		look := time.Time{}
		if left != nil {
			look = time.Now().Add(deathLook)
		}
		_ = f.SetReadDeadline(look)
		if ctx.Err() != nil { // whose deadline that may have undone
			return false
		}
		err = raw.Read(func(uintptr) bool {
			dead = w.isDead()
			return dead
		})
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil { // that of an earlier wait may have come late
			dead, err = left != nil && left(), nil
		}
	}
	if err != nil && ctx.Err() == nil {
		event.WorkerWatch.On(&w.domain.conductor.log).Err(err).Int("pid", w.pid).Msg("cannot be told of the end of a worker")
		for !dead && sleep(ctx, deathLook) {
			dead = w.isDead() || left != nil && left()
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
