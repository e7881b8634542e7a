package slots_test

import (
	"sync"
	"testing"
	"time"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

func TestResponderWords(t *testing.T) {
	g := slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4}
	r, mem := newRing(t, g)
	const i, run, owner, ticket = 3, 2, 9, 1<<40 - 1
	want := slots.Run{Index: i, Len: run, Ticket: ticket}

	if _, ok := r.Pick(i, owner); ok {
		t.Error("picked what was not delivered")
	}
	r.Deliver(i, run, owner, ticket)
	delivered := r.AnswerWord(i)
	if _, ok := r.Pick(i, owner+1); ok {
		t.Error("picked what was delivered to another")
	}
	if r.Finish(want, owner) {
		t.Error("finished what was not picked")
	}
	if _, ok := r.PickHinted(slots.MakeHint(0, i, ticket-1), owner); ok {
		t.Error("picked by the hint of an earlier request")
	}
	u, ok := r.PickHinted(slots.MakeHint(0, i, ticket), owner)
	if !ok || u != want {
		t.Fatalf("picked %+v, %v", u, ok)
	}
	if _, ok := r.Pick(i, owner); ok {
		t.Error("picked twice")
	}
	if r.Withdraw(i, delivered) {
		t.Error("withdrew what was picked")
	}
	if r.Finish(want, owner+1) || r.Finish(slots.Run{Index: i, Len: run, Ticket: 0}, owner) {
		t.Error("somebody else finished it")
	}
	if !r.Finish(u, owner) || r.Finish(u, owner) {
		t.Error("a picked request is finished once")
	}
	if w := r.AnswerWord(i); w != delivered.With(slots.Done) {
		t.Errorf("finished word is %v", w)
	}
	r.Forget(i)
	if r.AnswerWord(i) != 0 {
		t.Error("forgotten word is not zero")
	}

	r.Deliver(i, run, owner, ticket)
	if !r.Withdraw(i, r.AnswerWord(i)) || r.Withdraw(i, delivered) {
		t.Error("a delivered request is withdrawn once")
	}
	if _, ok := r.Pick(i, owner); ok {
		t.Error("picked what was withdrawn")
	}
	// A run that leaves the ring cannot be picked.
	for _, w := range []slots.Word{slots.MakeWord(slots.Recv, 14, owner, 1), slots.MakeWord(slots.Recv, 0, owner, 1)} {
		shm.Uint64At(mem, 8192+8*g.Slots+8*i).Store(uint64(w))
		if u, ok := r.Pick(i, owner); ok {
			t.Errorf("picked %+v", u)
		}
	}
}

// Of a worker that picks and a daemon that withdraws, exactly one succeeds.
func TestPickAgainstWithdraw(t *testing.T) {
	r, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	for ticket := range uint64(2000) {
		r.Deliver(0, 1, 9, ticket)
		w := r.AnswerWord(0)
		var wg sync.WaitGroup
		picked, withdrawn := false, false
		wg.Go(func() { _, picked = r.Pick(0, 9) })
		wg.Go(func() { withdrawn = r.Withdraw(0, w) })
		wg.Wait()
		if picked == withdrawn {
			t.Fatalf("picked %v, withdrawn %v", picked, withdrawn)
		}
		r.Forget(0)
	}
}

// Of a worker that revokes and a sender that takes, exactly one succeeds.
func TestRevokeAgainstTake(t *testing.T) {
	r, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 4})
	for range 2000 {
		u, err := r.Claim(1, 2)
		if err != nil {
			t.Fatal(err)
		}
		r.Publish(u, 1)
		w := r.Word(u.Index)
		var wg sync.WaitGroup
		revoked, taken := false, false
		wg.Go(func() { revoked = r.Revoke(u, 1) })
		wg.Go(func() { taken = r.Take(u.Index, w) })
		wg.Wait()
		if revoked == taken {
			t.Fatalf("revoked %v, taken %v", revoked, taken)
		}
		r.Free(u.Index, u.Len)
	}
}

// A claimer that sleeps when the ring is full is woken by a consumer.
func TestWakeFree(t *testing.T) {
	r, _ := newRing(t, slots.Geometry{SlotSize: 128, Slots: 16, MaxRun: 16})
	guard := time.AfterFunc(4*time.Minute, func() { panic("a wake-up was lost") })
	defer guard.Stop()
	const n = 3000
	full := make(chan slots.Run, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			u, err := r.Claim(1, 16)
			for err != nil {
				bell := r.WaitFree(16)
				if u, err = r.Claim(1, 16); err != nil {
					shm.FutexWait(r.FreeBell(), bell, 5*time.Minute)
				}
			}
			full <- u
		}
		close(full)
	})
	for u := range full {
		r.Abort(u)
		r.Freed(16)
	}
	wg.Wait()
}
