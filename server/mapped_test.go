package server

import (
	"testing"

	"github.com/rdmad/rdmad/internal/exchange"
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
