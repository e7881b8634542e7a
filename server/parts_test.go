package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// The monitor serves parts and runs no handler, whatever another process makes of a part after the monitor has looked at it.
func TestMonitorTrustsNoHeader(t *testing.T) {
	for name, x := range map[string]struct {
		flags  slots.Flags
		op     exchange.Op
		status slots.Status
	}{
		"a part of none":             {slots.FlagPart, exchange.OpPull, slots.StatusNotExecuted},
		"no part any more":           {0, exchange.OpPull, slots.StatusInvalid},
		"the end of a large request": {slots.FlagPart, exchange.OpRun, slots.StatusInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			r := newExchangeRig(t)
			r.s.handlers.Store(&map[uint32]handlers{fuzzMethod: {call: func(*Call) error { t.Error("a handler ran on the monitor"); return nil }}})
			u := slots.Run{Index: 4, Len: 1, Ticket: 1}
			h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Flags: x.flags, Method: fuzzMethod, Length: exchange.PartSize, Answer: 300}
			h.Encode(r.ring.Header(u))
			p := exchange.PartRequest{ID: 1, Op: x.op}
			p.Encode(r.ring.Payload(u))
			r.ring.Deliver(u.Index, 1, fuzzID, u.Ticket)
			monitor := &Call{server: r.s}
			r.s.pool.serve(monitor, slots.MakeHint(fuzzLane, u.Index, u.Ticket))
			if w := r.ring.AnswerWord(u.Index); w != slots.MakeWord(slots.Done, 1, fuzzID, u.Ticket) {
				t.Fatalf("the answer's word is %v", w)
			}
			var a slots.Header
			if !a.Decode(r.ring.Header(u)) || a.CheckAnswer(r.ring.Geometry(), 1, u.Ticket) != nil || a.Status != x.status {
				t.Errorf("the answer has status %v, want %v", a.Status, x.status)
			}
		})
	}
}

// A server that closes reports what its workers have answered, also while one behind them runs.
func TestAnswersOfAServerThatCloses(t *testing.T) {
	r := newExchangeRig(t)
	p := &r.s.pool
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	*r.s.session.Rings = *slots.NewWorkerRings(mem) // where the pool looks
	daemon := slots.NewWorkerRings(mem)
	b := &batch{n: 3, turn: 1}
	for k := range b.n {
		b.hints[k] = slots.MakeHint(fuzzLane, k, 1)
	}
	p.batches, p.serving = append(p.batches, b), 1
	b.served.Store(1) // and the second one's handler does not return
	p.closed.Store(true)
	over := make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		p.linger(&Call{server: r.s}, ticker)
	}()
	daemontest.Eventually(t, "the first answer is reported", func() error {
		if h, ok := daemon.Up.Pop(); !ok || h.Index() != 0 {
			return fmt.Errorf("hint %v, %v", h, ok)
		}
		return nil
	})
	b.served.Store(3)
	p.refill(b)
	<-over
	for k := 1; k < 3; k++ {
		if h, ok := daemon.Up.Pop(); !ok || h.Index() != k {
			t.Errorf("answer %d: hint %v, %v", k, h, ok)
		}
	}
}

// Fetched waits for a stream whose first part a worker, or the monitor, has picked and not entered yet.
func TestFetchedWaitsForWhatIsPicked(t *testing.T) {
	r := newExchangeRig(t)
	p := &r.s.pool
	b := &batch{}
	p.batches = append(p.batches, b)
	for who, picking := range map[string]*atomic.Uint64{"a worker": &b.picking, "the monitor": &p.picking} {
		picking.Store(1)
		ctx, cancel := context.WithTimeout(t.Context(), 5*tick)
		if err := r.s.Fetched(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s picks: Fetched returned %v", who, err)
		}
		cancel()
		// It ends as soon as what was picked is entered, which counts by itself.
		done := make(chan error, 1)
		go func() { done <- r.s.Fetched(t.Context()) }()
		daemontest.Eventually(t, "Fetched waits", func() error {
			stacks := make([]byte, 1<<20)
			for routine := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
				if state, _, _ := strings.Cut(routine, "\n"); strings.Contains(state, "[select") && strings.Contains(routine, "(*pool).entered") {
					return nil
				}
			}
			return errors.New("it does not")
		})
		picking.Store(0)
		if err := <-done; err != nil {
			t.Errorf("%s has entered it: %v", who, err)
		}
	}
}

// Whoever serves a part says so meanwhile, and not while a handler runs.
func TestPickingEnds(t *testing.T) {
	r := newExchangeRig(t)
	r.s.handlers.Store(&map[uint32]handlers{fuzzMethod: {call: func(c *Call) error {
		if c.batch.picking.Load() != 0 {
			t.Error("the handler runs while its worker is said to pick")
		}
		return nil
	}}})
	b := &batch{}
	for k, flags := range []slots.Flags{0, slots.FlagPart} {
		u := slots.Run{Index: 4 + k, Len: 1, Ticket: 1}
		h := slots.Header{Ticket: u.Ticket, Run: 1, Kind: slots.KindRequest, Flags: flags, Method: fuzzMethod, Length: exchange.PartSize, Answer: 300}
		h.Encode(r.ring.Header(u))
		part := exchange.PartRequest{ID: 1, Op: exchange.OpPull}
		part.Encode(r.ring.Payload(u))
		r.ring.Deliver(u.Index, 1, fuzzID, u.Ticket)
		r.s.pool.serve(&Call{server: r.s, batch: b}, slots.MakeHint(fuzzLane, u.Index, u.Ticket))
		if b.picking.Load() != 0 {
			t.Errorf("flags %v: its worker is said to pick for ever", flags)
		}
	}
	r.s.pool.serve(&Call{server: r.s, batch: b}, slots.MakeHint(fuzzLane, 7, 1))
	if b.picking.Load() != 0 {
		t.Error("there was nothing to pick, and its worker is said to pick for ever")
	}
}

// The monitor tells the daemon that there is room again where it has taken requests out of the way, also if there was no part among
// them: what the daemon has kept back meanwhile may be the part that all handlers wait for.
func TestMonitorTellsOfRoom(t *testing.T) {
	r := newExchangeRig(t)
	daemon := r.monitored(slots.HintEntries)
	if _, ok := r.s.pool.pop(); !ok { // as a worker that is woken does, which has nothing to report
		t.Fatal("there is nothing")
	}
	if r.s.pool.serveParts(&Call{server: r.s}) {
		t.Error("there were parts")
	}
	if !daemon.marked() {
		t.Error("the daemon does not hear of the room")
	}
	if r.s.pool.serveParts(&Call{server: r.s}); daemon.marked() {
		t.Error("the daemon is told of room that it had")
	}
}

// Requests that are made and taken back, over and over, while all workers are inside handlers leave no pile of hints, and those
// that were not taken back stay.
func TestHintsOfWhatWasTakenBack(t *testing.T) {
	r := newExchangeRig(t)
	p := &r.s.pool
	kept := slots.MakeHint(fuzzLane, 3, 1)
	r.ring.Deliver(3, 1, fuzzID, 1)
	p.waiting = append(p.waiting, kept)
	most := 0
	for range 10 {
		r.monitored(slots.HintEntries / 2)
		p.serveParts(&Call{server: r.s})
		most = max(most, len(p.waiting))
	}
	if most >= 2*slots.HintEntries {
		t.Errorf("%d hints were kept", most)
	}
	if !slices.Contains(p.waiting, kept) {
		t.Error("the hint of a request that waits was dropped")
	}
}

// ringsOfDaemon is the daemon's side of what a process and its daemon tell each other.
type ringsOfDaemon struct {
	*slots.WorkerRings
	bells *slots.Bells
}

// monitored gives the server a fresh ring with n hints of requests that were taken back.
func (r *exchangeRig) monitored(n int) *ringsOfDaemon {
	r.t.Helper()
	mem := shm.AlignedBytes(slots.WorkerSegmentSize)
	*r.s.session.Rings = *slots.NewWorkerRings(mem)
	daemon := &ringsOfDaemon{slots.NewWorkerRings(mem), r.s.session.Bells}
	for k := range n {
		if !daemon.Down.Push(slots.MakeHint(fuzzLane, 5, uint64(2+k))) {
			r.t.Fatalf("no room for hint %d", k)
		}
	}
	daemon.marked()
	return daemon
}

// marked reports whether the process has said that there is something to look at, and forgets it.
func (d *ringsOfDaemon) marked() (marked bool) {
	d.bells.TakeWorkers(func(id int) { marked = marked || id == fuzzID })
	return marked
}
