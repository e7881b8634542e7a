package daemon

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/event"
)

// A process that was disconnected for its offences may not attach again as long as it lives. The next core finds it among the
// workers that are kept, and not any more when its domain has got other memory: then it is kept by itself.

// outcastMeta comes with the pidfd of the process.
type outcastMeta struct{}

func (w *worker) outcastKey() string {
	return fmt.Sprintf("%s/%s/%d", kindOutcast, w.domain.name, w.pid)
}

// keepOutcast keeps who a worker was that loses its memory, if it was disconnected for its offences. conductor.mu is held.
func (w *worker) keepOutcast() {
	c := w.domain.conductor
	if w.struck == 0 || w.pid == 0 || w.pidfd < 0 || c.ctx.Err() != nil { // in a core that stops the pidfd may be closed just now
		return
	}
	// A pidfd of its own: a service manager drops a descriptor of an open file that it has already, under whatever name, and until
	// the worker's item goes it has the worker's. The process is the same if that has not ended by then.
	pidfd, err := unix.PidfdOpen(w.pid, 0)
	if err == nil {
		defer func() { _ = unix.Close(pidfd) }()
	}
	if w.isDead() {
		return
	}
	if err != nil {
		event.NotKept.On(&c.log).Err(err).Int("pid", w.pid).Msg("not kept for the next supervisor")
		pidfd = w.pidfd // the next core has it all the same
	}
	c.keep(w.outcastKey(), &outcastMeta{}, pidfd)
}

// adoptOutcasts keeps the processes out that the last core has kept out, each until it is dead.
func (d *domain) adoptOutcasts(left []leftover[outcastMeta]) {
	c := d.conductor
	for _, l := range left {
		w := &worker{domain: d, pid: l.n, pidfd: take(l.item, 0), struck: 1}
		c.mu.Lock()
		c.castOut(w)
		c.mu.Unlock()
		if !c.spawn(func() {
			defer w.closePidfd()
			if w.awaitDeath(c.ctx, nil) {
				c.departed(w)
			}
		}) {
			w.closePidfd()
		}
	}
}
