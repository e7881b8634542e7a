package attach

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// maxAllocs is how many cores are asked for a region. Where the memory for it is not there, making it may be what they die of, by
// the kernel's out-of-memory killer: then each that is asked again is the next to die, with all that others do on the node.
const maxAllocs = 2

// errCoresEnded tells a question that was asked of maxAllocs cores from one that a core has refused: it is not asked anew.
var errCoresEnded = errors.New("cores have ended over it")

// resumed deals with a core that has taken over: it is told what this worker has, and
// asked again what the one before it has not answered, but for regions that maxAllocs cores
// have not made. It runs on the goroutine that reads.
func (s *Session) resumed(m *Message, fds []int) error {
	if m.Resumed == nil || len(fds) > 1 || len(fds) > 0 && s.Rings == nil {
		return fmt.Errorf("%w: a malformed resumed message", ErrInvalid)
	}
	if len(fds) == 1 {
		s.setPages(fds[0])
		fds[0] = -1
		s.Wake() // who sleeps in another way since the pages of the last core have ended
	} else {
		s.NoPages(s.pages.Load()) // who is parked need not have noticed that those have ended
	}
	have := &Have{}
	s.mu.Lock()
	have.Lanes = slices.Sorted(maps.Keys(s.lanes))
	regions := slices.Collect(maps.Values(s.regions))
	questions := slices.SortedFunc(maps.Values(s.pending), func(a, b *question) int { return cmp.Compare(a.m.Seq, b.m.Seq) })
	s.mu.Unlock()
	var given []*question // up
	questions = slices.DeleteFunc(questions, func(q *question) bool {
		q.cores++
		if q.m.Type != TypeAlloc || q.cores < maxAllocs {
			return false
		}
		given = append(given, q)
		return true
	})
	if have.AllRegions = len(regions) <= MaxHaveRegions; have.AllRegions {
		for _, r := range regions {
			have.Regions = append(have.Regions, *InfoOf(r.id))
		}
	}
	for _, r := range regions {
		r.forgottenByAll() // the peers' connections have ended with the core
	}
	for _, q := range questions {
		have.Asking = append(have.Asking, q.m.Seq)
	}
	if err := s.insist(context.Background(), &Message{Type: TypeHave, Have: have}); err != nil {
		return err
	}
	if s.events.Resumed != nil {
		s.events.Resumed(*m.Resumed)
	}
	for _, q := range given {
		fail := FailFor(fmt.Errorf("%w: %d cores of the daemon have ended, one after the other, while they were asked for this "+
			"region of %d bytes: see its log (rdmad doctor says what its control group lets it have)", ErrLimit, q.cores, q.m.Region.Size))
		fail.own = errCoresEnded
		s.answer(&Message{Type: TypeFail, Seq: q.m.Seq, Fail: fail})
	}
	for _, q := range questions {
		if err := s.insist(context.Background(), q.m); err != nil {
			return err
		}
	}
	return nil
}
