package slots_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// stressDaemon moves requests from a ring to a mirror and answers back, group
// by group, as two daemons and a wire would.
type stressDaemon struct {
	ring    *slots.Ring
	mirror  []byte
	bells   *slots.Bells
	bell    *shm.Bell
	epfd    int
	workers []*slots.WorkerRings // by owner; nil: none
	dead    []bool
	deaths  chan int
	handled []atomic.Int64 // answered requests by owner
	onCycle func()

	requests *groupsend.Requests
	answers  *groupsend.Answers
	journal  []journalled
	ready    []int
	wake     []bool
	groups   int
	messages int
	err      error
}

type journalled struct {
	word   slots.Word
	length uint32
	live   bool
}

func newStressDaemon(ring *slots.Ring, bells *slots.Bells, workers []*slots.WorkerRings) (*stressDaemon, error) {
	g := ring.Geometry()
	bell, err := shm.NewBell()
	if err != nil {
		return nil, err
	}
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, bell.FD(), &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		return nil, err
	}
	return &stressDaemon{
		ring: ring, mirror: make([]byte, g.SlotBytes()), bells: bells, bell: bell, epfd: epfd,
		workers: workers, dead: make([]bool, len(workers)), deaths: make(chan int, len(workers)),
		handled: make([]atomic.Int64, len(workers)), onCycle: func() {},
		requests: groupsend.NewRequests(ring, groupsend.MaxCount), answers: groupsend.NewAnswers(g, groupsend.MaxCount),
		journal: make([]journalled, g.Slots), wake: make([]bool, len(workers)),
	}, nil
}

func (d *stressDaemon) close() error { return errors.Join(d.bell.Close(), unix.Close(d.epfd)) }

func (d *stressDaemon) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// Admit, Withdrawn and Post make it the clerk of its requests.
func (d *stressDaemon) Admit(i int, w slots.Word, h *slots.Header, bad error) groupsend.Verdict {
	switch {
	case bad != nil:
		d.fail("refused slot %d: %v: %w", i, w, bad)
		return groupsend.Refuse
	case d.journal[i].live:
		d.fail("slot %d is admitted twice: %v", i, w)
		return groupsend.Refuse
	case int(h.Trace) != w.Owner() || w.Owner() >= len(d.workers) || d.dead[w.Owner()]:
		d.fail("slot %d: %v with the header of worker %d", i, w, h.Trace)
		return groupsend.Refuse
	}
	d.journal[i] = journalled{word: w, length: h.Length, live: true}
	return groupsend.Send
}

func (d *stressDaemon) Withdrawn(i int) { d.journal[i] = journalled{} }

func (d *stressDaemon) Part(from, bytes int) {
	copy(d.mirror[from:from+bytes], d.ring.Slots()[from:])
}

func (d *stressDaemon) Post(g groupsend.Group) {
	size := d.ring.Geometry().SlotSize
	d.Part(g.From, g.Bytes)
	imm := g.Imm()
	i, end := imm.Index(), 0
	for range imm.Count() {
		var h slots.Header
		if !h.Decode(d.mirror[i*size:]) {
			d.fail("slot %d arrived with bits that must be zero", i)
			return
		}
		j := d.journal[i]
		if !j.live || h.CheckRequest(d.ring.Geometry(), j.word.Run()) != nil || h.Ticket != j.word.Ticket() {
			d.fail("slot %d arrived as %+v, journalled %+v", i, h, j)
			return
		}
		payload := d.mirror[i*size+slots.HeaderSize:][:h.Length]
		if !check(payload, requestSeed(j.word.Owner(), h.Cookie)) {
			d.fail("slot %d arrived damaged: %+v", i, h)
			return
		}
		h.Kind, h.Answer = slots.KindAnswer, 0
		fill(payload, answerSeed(&h))
		h.Encode(d.mirror[i*size:])
		d.ready = append(d.ready, i)
		end = i*size + slots.HeaderSize + int(h.Length)
		i += int(h.Run)
	}
	if end != g.From+g.Bytes && g.Bytes > 0 {
		d.fail("group %+v ends at %d", g, end)
	}
	d.groups++
	d.messages += g.Count
}

// answerPoster brings answers back.
type answerPoster struct{ *stressDaemon }

func (d answerPoster) Part(from, bytes int) {
	copy(d.ring.Slots()[from:from+bytes], d.mirror[from:])
}

func (d answerPoster) Post(g groupsend.Group) {
	d.Part(g.From, g.Bytes)
	i := g.Index
	for range g.Count {
		j := d.journal[i]
		owner, run := j.word.Owner(), j.word.Run()
		d.journal[i] = journalled{}
		switch {
		case d.dead[owner]:
			d.ring.Free(i, run)
			d.ring.Freed(run)
		case !d.ring.Answer(i, j.word):
			d.fail("slot %d: answered and found %v", i, d.ring.Word(i))
			return
		case !d.workers[owner].Down.Push(slots.MakeHint(0, i, j.word.Ticket())):
			d.fail("worker %d: hint ring full", owner)
			return
		default:
			d.wake[owner] = true
			d.handled[owner].Add(1)
		}
		i += run
	}
}

// cycle does what there is to do. It looks at the ring only when a worker has
// marked the lane, so that a lost mark is a hang.
func (d *stressDaemon) cycle(more *bool) (worked bool) {
	select {
	case owner := <-d.deaths:
		d.dead[owner] = true
		d.ring.Sweep(only(owner), func(i int) bool { return d.journal[i].live })
		d.ring.WakeFree()
		worked = true
	default:
	}
	marked := *more
	d.bells.TakeLanes(func(uint16) { marked = true })
	if marked {
		var n int
		n, *more = d.requests.Plan(d, 32)
		worked = worked || n > 0 || *more
	}
	// Answers become ready newest first, and the last of them only when
	// nothing else happens.
	keep := 0
	if marked && len(d.ready) > 4 {
		keep = len(d.ready) / 4
	}
	for x := len(d.ready) - 1; x >= keep; x-- {
		i := d.ready[x]
		d.answers.Add(i, d.journal[i].word.Run(), d.journal[i].length)
		worked = true
	}
	d.ready = d.ready[:keep]
	if n, _ := d.answers.Plan(answerPoster{d}, 32); n > 0 || d.answers.Pending() > 0 || keep > 0 {
		worked = true
	}
	for owner, wake := range d.wake {
		if wake && d.workers[owner].Down.Wake() {
			worked = true
		}
		d.wake[owner] = false
	}
	d.onCycle()
	return worked
}

// run cycles until stop is closed, sleeping whenever there is nothing to do. A
// sleep is bounded because a ringer can die before it rings.
func (d *stressDaemon) run(stop <-chan struct{}) error {
	events := make([]unix.EpollEvent, 1)
	more := false
	for d.err == nil {
		if d.cycle(&more) {
			continue
		}
		select {
		case <-stop:
			return d.err
		default:
		}
		d.bells.PrepareSleep()
		if !d.bells.Dirty() {
			if _, err := shm.EpollWait(d.epfd, events, 5*time.Millisecond); err != nil {
				return err
			}
			d.bell.Silence()
		}
		d.bells.CancelSleep()
	}
	return d.err
}

// idle reports a ring that holds nothing.
func (d *stressDaemon) idle() error {
	if n := freeSlots(d.ring); n != d.ring.Geometry().Slots || d.answers.Pending() != 0 {
		return fmt.Errorf("%d of %d slots are free, %d answers pending", n, d.ring.Geometry().Slots, d.answers.Pending())
	}
	for i := range d.journal {
		if d.journal[i].live {
			return fmt.Errorf("slot %d is still journalled", i)
		}
	}
	return nil
}
