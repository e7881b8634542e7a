package daemon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/agent"
	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// spiller sends a worker the answers that it does not take. The socket's buffer is the
// queue: what is in it outlives this process as long as somebody keeps the socket, so
// slots are freed only when their answers are there. Nobody waits for the worker: what
// the socket cannot take stays in the slots.
type spiller struct {
	w *worker
	// most is the most bytes, and patience the longest time, that the worker may
	// leave unread; 0 for ever. What is more than most stays in the slots for grace.
	most            int
	patience, grace time.Duration
	// store makes a memfd of a spill.
	store func(spill []byte) (fd int, err error)
	// running counts the tasks that may look at slots, or have the agent do so.
	running sync.WaitGroup

	// unread is the size of sent. It is changed with mu held, and read also without: mu is held while memory is made and something is
	// sent, for which who holds conductor.mu must not wait.
	unread atomic.Int64
	// mu is held by who changes what was sent.
	mu sync.Mutex
	// sent are the spills that the worker has not said to have read, oldest first.
	sent     []sentSpill
	seq      uint64
	watching bool
	// looked is when the worker was last looked at while it had something to read, and late, once the oldest of that was found to have
	// been there for too long, since when that is known.
	looked time.Time
	late   time.Time
	over   bool // the worker is disconnected
}

// sentSpill is a spill that was sent. Its descriptor is kept to take its memory back,
// which the worker could hold on to otherwise.
type sentSpill struct {
	seq       uint64
	fd, bytes int
	at        time.Time
}

// mostSent bounds the descriptors that are kept for one worker.
const mostSent = 64

func newSpiller(w *worker) *spiller {
	limits := &w.domain.conductor.live().Limits
	return &spiller{
		w: w, most: limits.SpillBytes, patience: limits.SpillTimeout, grace: limits.SpillAfter,
		seq:   rand.Uint64() >> 1, // not what the last core has used
		store: storeSpill,
	}
}

// storeSpill puts a spill into memory of its own, if there is enough of it.
func storeSpill(spill []byte) (fd int, err error) {
	return shm.CreateSealed("rdmad-spill", spill, leaving(config.LeftByLanes))
}

// start sends the answers of list, on another goroutine. It reports whether it does:
// not when the conductor is stopping.
func (s *spiller) start(list []agent.Overdue) bool {
	s.running.Add(1)
	started := s.w.domain.conductor.spawn(func() {
		s.run(list)
		s.watch()
	})
	if !started {
		s.running.Done()
	}
	return started
}

// run sends the answers of list.
func (s *spiller) run(list []agent.Overdue) {
	defer s.running.Done()
	d := s.w.domain
	if !d.use() {
		return // its answers are in slots that nobody else wants
	}
	defer d.using.RUnlock()
	view := s.w.view
	for len(list) > 0 {
		spill, n := agent.Pack(list, min(agent.SpillMost, s.most))
		part := list[:n]
		list = list[n:]
		faultpoint.Here("spill.before")
		err := s.send(spill)
		faultpoint.Here("spill.sent")
		d.agent.Commands.Do(func() { d.view.Spilled(view, part, len(spill), err) })
		if err != nil {
			d.conductor.log.Debug().Err(err).Int("worker", s.w.id).Msg("answers stay in their slots")
			break
		}
	}
	d.agent.Commands.Do(func() { view.Spilling = false })
}

// errMuch says that a worker has much to read.
var errMuch = errors.New("the process has much to read")

// errSlow says that a worker is disconnected, because it does not read or by itself.
var errSlow = errors.New("the process is disconnected")

// send puts a spill into the worker's socket, or disconnects it.
func (s *spiller) send(spill []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.look(time.Now()); err != nil {
		return err
	}
	if len(s.sent) == mostSent {
		return errMuch
	}
	if unread := s.held(); unread > 0 && unread+len(spill) > s.most {
		if time.Since(s.sent[0].at) < s.grace {
			return errMuch // it may be about to read
		}
		return s.disconnect(fmt.Sprintf("the process has left %d bytes of answers unread, and %d more wait (limits.spill_bytes is %d)", unread, len(spill), s.most))
	}
	fd, err := s.store(spill)
	if err != nil {
		return err
	}
	if err = s.w.conn.Offer(&attach.Message{Type: attach.TypeSpilled, Seq: s.seq + 1}, fd); err != nil {
		shm.CloseFDs([]int{fd})
		return err
	}
	s.seq++
	s.unread.Add(int64(len(spill)))
	now := time.Now()
	if len(s.sent) == 0 {
		s.looked = now
	}
	s.sent = append(s.sent, sentSpill{s.seq, fd, len(spill), now})
	return nil
}

// taken notes that the worker has read what was sent up to seq. What it says of spills
// that another core has sent means nothing.
func (s *spiller) taken(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.sent, func(o sentSpill) bool { return o.seq == seq }) {
		return
	}
	for last := false; !last; {
		last = s.sent[0].seq == seq
		s.drop(true)
	}
}

// drop forgets the oldest spill. With cut nobody can read it any more, and its memory is
// free even if the worker holds on to it. The caller holds mu.
func (s *spiller) drop(cut bool) {
	o := s.sent[0]
	s.sent = slices.Delete(s.sent, 0, 1)
	s.late = time.Time{}
	s.unread.Add(-int64(o.bytes))
	if cut {
		_ = unix.Ftruncate(o.fd, 0)
	}
	shm.CloseFDs([]int{o.fd})
}

// look disconnects the worker when it has left something unread for too long. That it has read it may have been said already, and lie
// in the socket: while this process stands still nobody takes that out, and it knows nothing of the worker. So such a time does not count,
// and nobody is disconnected before the second look that finds it, a step after the first, but who is later than any such time may make
// it seem. The caller holds mu.
func (s *spiller) look(now time.Time) error {
	if s.over {
		return errSlow
	}
	if len(s.sent) == 0 || s.patience == 0 {
		return nil
	}
	step := s.step()
	if gap := now.Sub(s.looked); gap > 2*step {
		for i := range s.sent {
			if at := s.sent[i].at.Add(gap); at.Before(now) {
				s.sent[i].at = at
			} else {
				s.sent[i].at = now
			}
		}
	}
	s.looked = now
	waited := now.Sub(s.sent[0].at)
	switch {
	case waited <= s.patience:
		s.late = time.Time{}
		return nil
	case waited > s.patience+mostLate*step: // one who reads something with every step is slow, too
	case s.late.IsZero():
		s.late = now
		return nil
	case now.Sub(s.late) < step:
		return nil
	}
	return s.disconnect(fmt.Sprintf("the process has left %d bytes of answers unread for %s (limits.spill_timeout)", s.held(), waited.Round(time.Millisecond)))
}

// disconnect ends the worker's attachment. Its serveWorker cleans up. The caller holds
// mu.
func (s *spiller) disconnect(why string) error {
	s.over = true
	for len(s.sent) > 0 {
		s.drop(true)
	}
	d := s.w.domain
	event.WorkerSlow.On(&d.conductor.log).Int("worker", s.w.id).Str("name", s.w.name).Int("pid", s.w.pid).Str("domain", d.name).Msg("slow worker disconnected: " + why)
	d.agent.Commands.Do(func() { d.agent.Count.SlowWorkers++ })
	s.w.dismiss(why)
	return fmt.Errorf("%w: %s", errSlow, why)
}

// watchStep is how often a worker that leaves answers unread is looked at.
const watchStep = time.Second

// mostLate is after how many steps more a worker is disconnected at the first look: more than there are between two looks of which
// neither makes up for a gap.
const mostLate = 4

// step is that for a worker for which there is less patience.
func (s *spiller) step() time.Duration { return min(watchStep, s.patience/4) }

// watch returns when the worker has read everything, or is disconnected.
func (s *spiller) watch() {
	s.mu.Lock()
	again := s.watching || s.patience == 0
	s.watching = !again || s.watching
	s.mu.Unlock()
	if again {
		return
	}
	for {
		s.mu.Lock()
		if s.look(time.Now()) != nil || len(s.sent) == 0 {
			s.watching = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if !sleep(s.w.domain.conductor.ctx, s.step()) {
			return
		}
	}
}

// held returns the bytes that the worker has not read.
func (s *spiller) held() int { return int(s.unread.Load()) }

// stop sends a worker nothing more that is detached. What it was sent is kept until it is known who may read that: see end.
func (s *spiller) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// end gives up the descriptors of a worker that is detached. It may still read what it
// was sent, unless that is cut, because it has said goodbye or is not trusted: its id is free then, and with the next one it
// may be sent as much again.
func (s *spiller) end(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	for len(s.sent) > 0 {
		s.drop(cut)
	}
}
