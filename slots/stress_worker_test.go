package slots_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// fill writes bytes that depend on x and on their place; check finds any other.
func fill(b []byte, x uint64) {
	for ; len(b) >= 8; b = b[8:] {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b, x)
	}
	for i := range b {
		b[i] = byte(x>>33) + byte(i)
	}
}

func check(b []byte, x uint64) bool {
	for ; len(b) >= 8; b = b[8:] {
		x = x*6364136223846793005 + 1442695040888963407
		if binary.LittleEndian.Uint64(b) != x {
			return false
		}
	}
	for i := range b {
		if b[i] != byte(x>>33)+byte(i) {
			return false
		}
	}
	return true
}

// requestSeed and answerSeed choose the bytes of a message.
func requestSeed(owner int, seq uint64) uint64 { return seq<<16 | uint64(owner) }
func answerSeed(h *slots.Header) uint64        { return ^h.Cookie ^ h.Ticket<<20 }

// stressWorker sends requests through a ring and checks the answers, with the
// protocol of docs/layout.md and nothing else.
type stressWorker struct {
	ring  *slots.Ring
	bells *slots.Bells
	bell  *shm.Bell
	down  *slots.HintRing
	owner int

	rng  *rand.Rand
	out  []outstanding // by first slot
	busy int
	sent int
	got  int
}

type outstanding struct {
	run    slots.Run
	seq    uint64
	length int
	live   bool
}

func newStressWorker(ring *slots.Ring, bells *slots.Bells, bell *shm.Bell, down *slots.HintRing, owner int, seed uint64) *stressWorker {
	return &stressWorker{
		ring: ring, bells: bells, bell: bell, down: down, owner: owner,
		rng: rand.New(rand.NewPCG(seed, uint64(owner))), out: make([]outstanding, ring.Geometry().Slots),
	}
}

const (
	stressWindow = 64
	stressStall  = 2 * time.Minute // a limit for what hangs, not for what is slow
)

// run sends n requests and gets n answers.
func (w *stressWorker) run(n int) error {
	last := time.Now()
	for w.got < n {
		before := w.got + w.sent
		full := false
		for w.sent < n && w.busy < stressWindow && !full {
			var err error
			if full, err = w.send(); err != nil {
				return err
			}
		}
		if err := w.receive(); err != nil {
			return err
		}
		if w.got+w.sent != before {
			last = time.Now()
			continue
		}
		if time.Since(last) > stressStall {
			return fmt.Errorf("worker %d hangs: %d sent, %d answered, %d on the way", w.owner, w.sent, w.got, w.busy)
		}
		w.sleep(full)
	}
	return nil
}

// send claims, writes and publishes one request. Now and then it takes the
// request back, if the daemon was not faster; not under the race detector,
// which does not know that the daemon drops what it read of such a request.
func (w *stressWorker) send() (full bool, err error) {
	g := w.ring.Geometry()
	length := w.rng.IntN(4 * g.SlotSize)
	if w.rng.IntN(64) == 0 {
		length = w.rng.IntN(g.MaxPayload() + 1)
	}
	u, err := w.ring.Claim(w.owner, g.RunFor(length))
	if err != nil {
		if errors.Is(err, slots.ErrFull) {
			return true, nil
		}
		return false, err
	}
	o := outstanding{run: u, seq: uint64(w.sent), length: length, live: true}
	fill(w.ring.Payload(u)[:length], requestSeed(w.owner, o.seq))
	h := slots.Header{
		Ticket: u.Ticket, Length: uint32(length), Run: uint16(u.Len), Kind: slots.KindRequest,
		Answer: uint32(g.Capacity(u.Len)), Trace: uint64(w.owner), Cookie: o.seq,
	}
	h.Encode(w.ring.Header(u))
	if !w.ring.Publish(u, w.owner) {
		return false, fmt.Errorf("worker %d: publish of %+v: the word is %v", w.owner, u, w.ring.Word(u.Index))
	}
	if sleep := w.bells.MarkLane(0); sleep != 0 && !w.bells.HasRung(sleep) {
		w.bell.Ring()
		w.bells.Rung(sleep)
	}
	if !raceEnabled && w.rng.IntN(32) == 0 && w.ring.Revoke(u, w.owner) {
		w.ring.Abort(u)
		w.ring.Freed(u.Len)
		return false, nil
	}
	if w.out[u.Index].live {
		return false, fmt.Errorf("worker %d: slot %d is claimed twice", w.owner, u.Index)
	}
	w.out[u.Index] = o
	w.busy++
	w.sent++
	return false, nil
}

// receive consumes the answers that hints tell of.
func (w *stressWorker) receive() error {
	for range slots.HintEntries {
		h, ok := w.down.Pop()
		if !ok {
			return nil
		}
		if h.Index() >= len(w.out) {
			return fmt.Errorf("worker %d: hint %#x", w.owner, uint64(h))
		}
		o := &w.out[h.Index()]
		if !o.live || !h.TicketIs(o.run.Ticket) || !w.ring.Answered(o.run, w.owner) || !w.ring.Acquire(o.run, w.owner) {
			return fmt.Errorf("worker %d: a hint for slot %d, which is %v", w.owner, h.Index(), w.ring.Word(h.Index()))
		}
		var a slots.Header
		if !a.Decode(w.ring.Header(o.run)) {
			return fmt.Errorf("worker %d: bits of an answer's header that must be zero", w.owner)
		}
		if err := a.CheckAnswer(w.ring.Geometry(), o.run.Len, o.run.Ticket); err != nil {
			return err
		}
		if a.Cookie != o.seq || int(a.Length) != o.length || !check(w.ring.Payload(o.run)[:a.Length], answerSeed(&a)) {
			return fmt.Errorf("worker %d: answer %+v to request %d is damaged", w.owner, a, o.seq)
		}
		w.ring.Consume(o.run)
		w.ring.Freed(o.run.Len)
		o.live = false
		w.busy--
		w.got++
	}
	return nil
}

// sleep waits for an answer, or for free slots when it has nothing to wait for.
func (w *stressWorker) sleep(full bool) {
	if full && w.busy == 0 {
		bell := w.ring.WaitFree(1)
		if freeSlots(w.ring) < w.ring.Geometry().MaxRun {
			shm.FutexWait(w.ring.FreeBell(), bell, 5*time.Millisecond)
		}
		return
	}
	bell := w.down.PrepareSleep()
	if w.down.Empty() {
		shm.FutexWait(w.down.Bell(), bell, 20*time.Millisecond)
	}
	w.down.CancelSleep()
}
