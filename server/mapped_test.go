package server

import (
	"testing"

	"github.com/rdmad/rdmad/internal/exchange"
	"github.com/rdmad/rdmad/slots"
)

// The memory of a lane that the daemon has closed stays while a stream holds a wait that came
// by it: the answer is written there, whoever reads it.
func TestClosedLaneOfHeldWait(t *testing.T) {
	r := newExchangeRig(t)
	r.send(0, false, exchange.PartRequest{Op: exchange.OpOpenStream, Credit: 1000}, nil)
	if len(r.ids) != 1 {
		t.Fatal("no stream")
	}
	r.send(1, false, exchange.PartRequest{Op: exchange.OpWait, ID: r.ids[0], Credit: 1000}, nil)
	if len(r.given) != 1 {
		t.Fatal("the wait is not held")
	}
	unmapped := 0
	r.s.removeLane(fuzzLane, func() {
		if r.settle(); len(r.given) > 0 {
			t.Error("unmapped under a wait that is to be answered")
		}
		unmapped++
	})
	if unmapped > 0 {
		t.Fatal("unmapped at once")
	}
	r.s.removeLane(fuzzLane, func() { t.Error("unmapped twice") }) // the daemon says it again
	r.s.stop()
	r.s.exchanges.shut()
	if unmapped != 1 {
		t.Errorf("unmapped %d times after the last answer", unmapped)
	}
}

// A lane of which nothing is kept goes at once.
func TestClosedLane(t *testing.T) {
	r := newExchangeRig(t)
	unmapped := 0
	r.s.removeLane(fuzzLane, func() { unmapped++ })
	if unmapped != 1 {
		t.Errorf("unmapped %d times", unmapped)
	}
}

// The memory of a lane goes as soon as no worker has a hint of it, however long the handler of a request by another lane takes.
func TestClosedLaneBesideHandlers(t *testing.T) {
	r := newExchangeRig(t)
	p := &r.s.pool
	take := func(lane uint16) *batch {
		b := &batch{limit: 1}
		p.batches = append(p.batches, b)
		if p.again = append(p.again, slots.MakeHint(lane, 0, 1)); !p.refill(b) {
			t.Fatal("nothing to take")
		}
		return b
	}
	take(fuzzLane + 1) // and its handler does not return
	mine := take(fuzzLane)
	unmapped := 0
	r.s.removeLane(fuzzLane, func() { unmapped++ })
	if unmapped > 0 {
		t.Fatal("unmapped under a worker that has a hint of it")
	}
	// What others take now finds nothing by a hint that names the lane.
	take(fuzzLane)
	mine.served.Store(1)
	p.refill(mine)
	if unmapped != 1 {
		t.Errorf("unmapped %d times", unmapped)
	}
}
