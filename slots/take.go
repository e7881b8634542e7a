package slots

import (
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
)

// ErrProtocol is wrapped by errors about words that no correct worker writes.
var ErrProtocol = errors.New("slots: protocol error")

// What CheckRun finds. They say nothing of the word: agents look at wrong words again and again, and must not make
// anything for each.
var (
	errRunSize = fmt.Errorf("%w: a run of a size that none has in that slot", ErrProtocol)
	errNobodys = fmt.Errorf("%w: a run of nobody", ErrProtocol)
	errNotARun = fmt.Errorf("%w: a run with slots that are not its own", ErrProtocol)
)

// The daemon's side of the requester's words. One goroutine, the lane's agent,
// calls these for a ring.

// CheckRun verifies the word w that was loaded from slot i, which must be the first
// of a run: the run lies in the ring and every other slot of it follows this one. It
// returns an error that wraps ErrProtocol, and means nothing if the word of
// slot i is another by then: a worker may revoke and free the run meanwhile.
func (r *Ring) CheckRun(i int, w Word) error {
	k := w.Run()
	if k < 1 || k > r.geo.MaxRun || k > r.geo.Slots-i {
		return errRunSize
	}
	if w.Owner() == 0 {
		return errNobodys
	}
	for j := 1; j < k; j++ {
		if f := r.Word(i + j); f.State() != Follow || f.Owner() != w.Owner() || f.Run() != j {
			return errNotARun
		}
	}
	return nil
}

// Take moves slot i from the word w (PUB) to TAKEN. False: the worker revoked it.
func (r *Ring) Take(i int, w Word) bool {
	// SYNC POINT (request): pairs with Publish.
	ok := r.words[i].CompareAndSwap(uint64(w), uint64(w.With(Taken)))
	faultpoint.Here("take.after")
	return ok
}

// Answer moves slot i from w's TAKEN to ANS. False: the word is not what the
// daemon left there, which only a fault of a worker can cause.
func (r *Ring) Answer(i int, w Word) bool {
	// SYNC POINT (answer): the answer's bytes, placed before this store, are
	// visible to the worker that loads ANS; pairs with Acquire. No swap is
	// needed: nobody else may change a TAKEN word.
	if r.Word(i) != w.With(Taken) {
		return false
	}
	faultpoint.Here("hand.before")
	shm.StoreRelease(&r.words[i], uint64(w.With(Ans)))
	faultpoint.Here("hand.after")
	return true
}

// FreeRest frees what is left of the run whose first slot i has the word w, TAKEN or
// MOVED, when Free may have been interrupted: the first slot is freed last, so as long as
// it has its word, slots that follow it are the run's. The run must lie in the ring.
func (r *Ring) FreeRest(i int, w Word) {
	if r.Word(i) != w {
		return
	}
	for j := w.Run() - 1; j > 0; j-- {
		if f := r.Word(i + j); f.State() == Follow && f.Owner() == w.Owner() && f.Run() == j {
			r.free(i + j)
		}
	}
	r.free(i)
}

// Move takes the answer at slot i, whose word is w (ANS), away from its owner, who
// has it by another way. False: the owner has acquired it. Call Free afterwards.
func (r *Ring) Move(i int, w Word) bool {
	// SYNC POINT (answer moved): pairs with Acquire.
	return w.State() == Ans && r.words[i].CompareAndSwap(uint64(w), uint64(w.With(Moved)))
}

// Sweep frees the slots of owners that are known to be dead. Slots of runs for
// which covered returns true (the daemon's journal still has them: they may be
// on the wire) stay until the daemon frees them with Free. It returns how many
// slots it freed. Call WakeFree afterwards.
//
// One pass suffices where no process writes another one's id. A run is
// freed from its first slot on, which here means: FOLLOW slots are freed unless
// the run they belong to is covered.
func (r *Ring) Sweep(dead func(owner int) bool, covered func(index int) bool) (freed int) {
	keepUntil := 0
	for i := range r.words {
		w := r.Word(i)
		if w.State() == Free || !dead(w.Owner()) {
			continue
		}
		if w.State() != Follow && covered(i) {
			keepUntil = i + max(1, w.Run())
			continue
		}
		if w.State() == Follow && i < keepUntil {
			continue
		}
		if r.words[i].CompareAndSwap(uint64(w), uint64(w.freed())) {
			freed++
			faultpoint.Here("sweep.freed")
		}
	}
	return freed
}

// The responder's words. A word is written by the daemon (Deliver, Withdraw, Forget)
// and by the service worker it names as owner (PickHinted, Finish).

// AnswerWord returns slot i's responder word.
func (r *Ring) AnswerWord(i int) Word { return Word(r.answers[i].Load()) }

// Deliver hands the request in slot i to the service worker owner.
func (r *Ring) Deliver(i, run, owner int, ticket uint64) {
	// SYNC POINT (delivery): the request's bytes are visible to the worker
	// that picks the slot; pairs with PickHinted.
	faultpoint.Here("deliver.before")
	shm.StoreRelease(&r.answers[i], uint64(MakeWord(Recv, run, owner, ticket)))
	faultpoint.Here("deliver.after")
}

// Withdraw takes a delivered request back from a worker that has not started
// on it. False: it has.
func (r *Ring) Withdraw(i int, w Word) bool {
	return r.answers[i].CompareAndSwap(uint64(w.With(Recv)), uint64(w.freed()))
}

// Pick starts the handling of slot i by the service worker owner and returns
// the run's length and ticket. ok is false if the slot was not delivered to it. Only
// tests call it: workers know a request by its hint.
func (r *Ring) Pick(i, owner int) (u Run, ok bool) { return r.pick(r.AnswerWord(i), i, owner) }

// PickHinted is Pick for the request that h names, and not for another one that has
// come to the slot since. The hint's index must lie in the ring.
func (r *Ring) PickHinted(h Hint, owner int) (u Run, ok bool) {
	w := r.AnswerWord(h.Index())
	if !h.TicketIs(w.Ticket()) {
		return Run{}, false
	}
	return r.pick(w, h.Index(), owner)
}

// pick is Pick for the word w that was loaded from slot i.
func (r *Ring) pick(w Word, i, owner int) (u Run, ok bool) {
	// SYNC POINT (delivery): w was loaded before; pairs with Deliver.
	if w.State() != Recv || w.Owner() != owner || w.Run() < 1 || w.Run() > r.geo.Slots-i {
		return Run{}, false
	}
	faultpoint.Here("pick.before")
	if !r.answers[i].CompareAndSwap(uint64(w), uint64(w.With(Picked))) {
		return Run{}, false
	}
	faultpoint.Here("pick.after")
	return Run{Index: i, Len: w.Run(), Ticket: w.Ticket()}, true
}

// Finish marks a picked slot as answered in place.
func (r *Ring) Finish(u Run, owner int) bool {
	w := MakeWord(Picked, u.Len, owner, u.Ticket)
	// SYNC POINT (answer in place): the answer's bytes are visible to the
	// daemon that loads DONE; pairs with AnswerWord in the daemon. No swap is
	// needed: nobody else may change the word of a picked slot.
	if r.AnswerWord(u.Index) != w {
		return false
	}
	faultpoint.Here("finish.before")
	shm.StoreRelease(&r.answers[u.Index], uint64(w.With(Done)))
	faultpoint.Here("finish.after")
	return true
}

// Forget clears slot i's responder word, for a delivery that no worker can know
// of. After an answer the word may stay: without a record nobody looks at it.
func (r *Ring) Forget(i int) { r.answers[i].Store(0) }
