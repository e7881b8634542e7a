package agent

import (
	"slices"
	"testing"

	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// What the last core had taken and not handed to its other side arrives as it was sent, wherever
// in the ring it is.
func TestRejoinKeepsTheOrder(t *testing.T) {
	s := newSide(t, nil)
	out, in := s.localLane(t)
	caller := s.addWorker(1)
	var last slots.Run
	for range 5 {
		last = s.sendOrdered(t, caller, out.Ring, 77, last).u
	}
	for i := range 5 {
		w := out.Ring.Word(i)
		if !out.Ring.Take(i, w) {
			t.Fatal("not taken")
		}
		// The later ones are in front, as in a ring that begins again.
		out.enter(i, &entry{word: w, answer: 8})
		out.kept.Enter(i, &vault.Entry{Word: w, Seq: uint32((i + 3) % 5), Answer: 8})
	}
	_, _, next := s.successor(t, out, in, caller)
	var got []int
	for i := range 5 {
		got = append(got, int(next.records[i].arrival))
	}
	if want := []int{4, 5, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("arrived as %v, want %v", got, want)
	}
}
