package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// The kernel runs what watches a descriptor when something comes to it, on the thread of who has sent it. Whoever is paged
// can watch its socket as often as it has room for: with some 100,000 watches each page takes an agent 20 ms. So pages that
// take long are looked for, and are offences. That must cost next to nothing where all is well, and time on the
// clock says little: those who are woken may run first.

const (
	// slowWake is how long it may take to wake all of a cycle, and pageTime how much more for each page, before the agent
	// becomes wary: it takes its own processor time for the next waryFlushes times, and if one took so long, that of
	// each of the next timedPages.
	slowWake    = time.Millisecond
	pageTime    = 20 * time.Microsecond
	waryFlushes = 16
	timedPages  = 64
	// slowPage is how much processor time a page takes at most that is not slow. It takes some microseconds.
	slowPage = time.Millisecond
	// longestPage is how much of a slow page counts, and freePaging how much is no offence of all that its worker has had lately:
	// what the host of a virtual machine takes from it in the middle of a page looks like the thread's own time, may be
	// long, and comes again and again, but not in each page. One part in forgivenIn of the time that goes by is forgotten.
	longestPage = 16 * time.Millisecond
	freePaging  = 2 * longestPage
	forgivenIn  = 20
)

// paging is how much time the slow pages of a worker have taken lately.
type paging struct {
	owed time.Duration
	at   int64 // when the last of them was
}

// slow adds a slow page, and returns how many offences it is: one for each millisecond.
func (p *paging) slow(took time.Duration, now int64) int {
	took = min(took, longestPage)
	p.owed = max(0, p.owed-time.Duration(now-p.at)/forgivenIn)
	p.owed, p.at = min(p.owed+took, 2*freePaging), now
	if p.owed <= freePaging {
		return 0
	}
	return int(took / slowPage)
}

// flush wakes those that were added, of whom some are paged.
func (d *Domain) flush(pages int) {
	a := d.agent
	if pages == 0 {
		a.Wakes.Flush()
		return
	}
	var before time.Duration
	if a.wary > 0 {
		before = threadTime()
	}
	at := shm.Nanotime()
	a.Wakes.Flush()
	limit := slowWake + time.Duration(pages)*pageTime
	slow := shm.Nanotime()-at > int64(limit)
	switch {
	case a.wary > 0 && slow && threadTime()-before > limit:
		a.wary, a.timed = waryFlushes, timedPages
	case slow:
		a.wary = waryFlushes
	case a.wary > 0:
		a.wary--
	}
}

// page pages w, and counts offences if that takes long, and has before.
func (d *Domain) page(w *Worker, p *shm.Pager) {
	d.agent.timed--
	before := threadTime()
	p.Page()
	if took := threadTime() - before; took > slowPage {
		for range w.paging.slow(took, shm.Nanotime()) {
			d.Offence(w, slowToWake)
		}
	}
}

// threadTime returns how much processor time the thread has had, 0 if the kernel does not say.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
