package stages

import (
	"testing"

	"github.com/rdmad/rdmad/internal/peerproto"
)

// What a peer says is cut to what can be.
func TestTraceOfALyingPeer(t *testing.T) {
	const now = 1e15
	e := Request{Began: now - 1000, Published: now - 900, Posted: now - 800, Completed: now - 700, Arrived: now - 100, Settled: now - 50, Taken: now}
	e.Group.Writes = 1
	for _, p := range []*peerproto.Stage{
		nil, {}, {Now: 1 << 62}, {Now: -1}, {Posted: 600, Began: 100, Ended: 500, Now: 700}, {Posted: 1 << 60, Began: 1 << 61, Ended: 3},
		{Posted: 500, Began: -9, Ended: -10, Picked: 1 << 50}, {Posted: 5, Collected: 1 << 40, Given: -1}, {Now: 500, Given: 400, Picked: 450},
	} {
		got := e.Split(p, now)
		list := []int64{got.claim, got.queue, got.post, got.wire, got.inbox, got.handler, got.back}
		sum := int64(0)
		for _, ns := range list {
			if sum += ns; ns < 0 {
				t.Errorf("%+v: %v", p, list)
			}
		}
		if sum != got.Total || got.Total != 1000 {
			t.Errorf("%+v: %v is %d, want %d", p, list, sum, got.Total)
		}
	}
	got := e.Split(&peerproto.Stage{Posted: 400, Began: 100, Ended: 350, Collected: 360, Now: 700}, now)
	want := Times{claim: 100, queue: 100, post: 100, wire: 200, inbox: 100, handler: 250, back: 150}
	if got.claim != want.claim || got.queue != want.queue || got.post != want.post || got.wire != want.wire || got.inbox != want.inbox || got.handler != want.handler || got.back != want.back {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A caller's stamps that cannot be are left out: one that says nothing of when it began would have waited since the node started.
func TestStampsThatCannotBe(t *testing.T) {
	const now = 1e15
	for _, at := range [][2]int64{{0, now - 900}, {-5, now - 900}, {now - 800, now - 900}, {now - 900, now + 1e9}} {
		e := Request{Began: at[0], Published: at[1], Posted: now - 700, Settled: now, Taken: now}
		if got := e.Split(nil, now); got.claim != 0 || got.queue != 0 || got.Total != 700 || len(got.Notes) == 0 {
			t.Errorf("began %d, published %d: %+v", at[0], at[1], got)
		}
	}
}
