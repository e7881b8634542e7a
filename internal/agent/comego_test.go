package agent

import (
	"testing"

	"github.com/rdmad/rdmad/shm"
)

// BenchmarkComeAndGo is a process that attaches to a domain with 32 large lanes, on which nothing is under way, and says goodbye.
func BenchmarkComeAndGo(b *testing.B) {
	s := newSide(b, nil)
	for k := range 32 {
		s.bigLane(b, uint16(rigLane+k))
	}
	s.addWorker(4)
	ids := new(CallerSet)
	for b.Loop() {
		s.d.UnsettledIDs(ids)
		w := s.addWorker(9)
		s.d.Detach(w.view)
		s.d.Bury(w.view)
		s.d.Mourn(w.view, shm.Nanotime())
	}
}
