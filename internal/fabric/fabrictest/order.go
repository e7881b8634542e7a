package fabrictest

import (
	"slices"

	"github.com/rdmad/rdmad/internal/fabric"
)

// tally checks that arrivals are those that were sent, once each: in order, if the device
// keeps it.
type tally struct {
	w    *world
	seen map[uint32]bool
}

func (w *world) newTally() *tally { return &tally{w: w, seen: make(map[uint32]bool)} }

// add checks an arrival, of which the immediate is next, if there is an order.
func (t *tally) add(c fabric.Completion, next uint32) {
	t.w.Helper()
	ordered := t.w.caps().OrderedWrites
	if c.Op != fabric.OpRecvImm || c.Status != fabric.StatusSuccess || ordered && c.Imm != next || t.seen[c.Imm] {
		t.w.Fatalf("arrival %d is %+v", next, c)
	}
	t.seen[c.Imm] = true
}

// inOrder sorts arrivals by their immediates if the device keeps no order, and leaves the
// receives that they have used in theirs.
func (w *world) inOrder(got []fabric.Completion) []fabric.Completion {
	if w.caps().OrderedWrites {
		return got
	}
	sorted := slices.Clone(got)
	slices.SortFunc(sorted, func(a, b fabric.Completion) int { return int(int64(a.Imm) - int64(b.Imm)) })
	for i := range sorted {
		sorted[i].ID = got[i].ID
	}
	return sorted
}
