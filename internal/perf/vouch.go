package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/internal/perf/link"
)

// silence is for how long a member may say nothing while all that it has said was taken: a little
// longer than it waits in vain itself, because it can say what for.
const silence = link.Patience + 3*time.Duration(atWork)

// member is what the leader knows of a member's being at work.
type member struct {
	*link.Link
	heard uint64
	// since is when there was a message of it last, or when it was let go on.
	since time.Time
	// waits: it has come to a Barrier, and is due to say nothing.
	waits bool
}

// excused reports that the leader cannot miss a member that is silent: it waits for others, or the leader
// has not taken yet what it has said.
func (m *member) excused() bool { return m.waits || m.News() }

// enter adds a member.
func (d *Lead) enter(l *link.Link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Members = append(d.Members, l)
	d.known = append(d.known, &member{Link: l})
}

// listen makes a member that is silent end the run. While members are started and connected they wait
// for each other without a word, and the leader's own waits have limits.
func (d *Lead) listen() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listening = true
	for _, m := range d.known {
		m.since = time.Now()
	}
}

// waits notes that a member waits for the others, or does no longer.
func (d *Lead) waits(i int, yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[i].waits, d.known[i].since = yes, time.Now()
}

// vouch tells the server and the members, which wait for those that are not as far, that the leader
// is at work; a member that is not ends the run by cancel. What it returns ends that.
func (d *Lead) vouch(cancel context.CancelCauseFunc) (stop func()) {
	done, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(time.Duration(atWork))
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if err := d.silent(); err != nil {
				cancel(err)
				return
			}
			// Who is gone is missed by those who wait for it.
			_ = d.Server.Alive()
			for _, m := range d.all() {
				_ = m.Alive()
			}
		}
	}()
	return func() { close(done); <-over }
}

// all returns the members that there are.
func (d *Lead) all() []*member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known
}

// silent returns an error for a member that says nothing, although the leader has taken all that it
// has said.
func (d *Lead) silent() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.listening {
		return nil
	}
	now := time.Now()
	for i, m := range d.known {
		if heard := m.Heard(); heard != m.heard || m.excused() {
			m.heard, m.since = heard, now
		} else if now.Sub(m.since) > silence {
			return fmt.Errorf("client %d: %w for %v: its process is stopped, or hangs", i, link.ErrSilent, silence)
		}
	}
	return nil
}
