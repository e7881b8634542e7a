package client

import (
	"context"
	"testing"
	"time"

	"github.com/rdmad/rdmad/slots"
)

// A context is watched from one wait to the next when it was that of the last watched wait
// too, and its end then rings the bell, also between waits.
func TestWatchGoesOnUnderTheSameContext(t *testing.T) {
	down := &slots.NewWorkerRings(make([]byte, slots.WorkerSegmentSize)).Down
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var w watch
	for turn := range 3 {
		if on, want := w.on(ctx), turn == 2; on != want {
			t.Fatalf("before wait %d: watched is %t, want %t", turn, on, want)
		}
		if !w.on(ctx) {
			w.begin(ctx, down.Ring)
		}
		w.leave(ctx)
	}
	bell := down.Bell().Load()
	cancel()
	for deadline := time.Now().Add(2 * time.Minute); down.Bell().Load() == bell; {
		if time.Now().After(deadline) {
			t.Fatal("the end of the context rang no bell")
		}
	}
	w.leave(ctx)
	if w.done != nil {
		t.Error("a context that has ended is still watched")
	}
}

// A context that was made for one call is not watched after it: its end rings nothing.
func TestWatchEndsWithTheCall(t *testing.T) {
	down := &slots.NewWorkerRings(make([]byte, slots.WorkerSegmentSize)).Down
	var w watch
	bell := down.Bell().Load()
	for range 10 {
		ctx, cancel := context.WithCancel(context.Background())
		w.begin(ctx, down.Ring)
		w.leave(ctx)
		cancel()
	}
	w.end()
	if now := down.Bell().Load(); now != bell {
		t.Errorf("%d rings of contexts that nobody waited under", now-bell)
	}
}
