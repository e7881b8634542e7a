package attach

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// unmappedLane is a lane for which the process had no room in its address space (RLIMIT_AS,
// vm.max_map_count), with the descriptor to try again. It is no reason to lose the others.
type unmappedLane struct {
	lane Lane
	fd   int
}

// mapLane maps a lane and hands it to the owner, or keeps its descriptor if there is no room, which it reports. It runs
// on the goroutine that reads.
func (s *Session) mapLane(l Lane, fd int) (kept bool, err error) {
	seg, err := s.open(fd, shm.KindLane, l.Geometry.SegmentSize())
	if errors.Is(err, unix.ENOMEM) {
		s.mu.Lock()
		s.unmapped[l.ID] = unmappedLane{l, fd}
		remind := s.serves && !s.reminding
		s.reminding = s.reminding || remind
		s.mu.Unlock()
		if remind {
			go s.remind()
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	ring, err := slots.NewRing(seg.Bytes(), l.Geometry)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.lanes[l.ID] = seg
	s.mu.Unlock()
	faultpoint.Here("lane.mapped")
	if s.events.Lane != nil {
		s.events.Lane(l, ring)
	}
	return false, nil
}

// mapAgain tries the lanes that are not mapped. It runs on the goroutine that reads, with each message:
// who looks a target up again may find room.
func (s *Session) mapAgain() error {
	s.mu.Lock()
	waiting := s.unmapped
	if len(waiting) > 0 {
		s.unmapped = make(map[uint16]unmappedLane)
	}
	s.mu.Unlock()
	var errs []error
	for _, u := range waiting {
		kept, err := s.mapLane(u.lane, u.fd)
		errs = append(errs, err)
		if !kept {
			shm.CloseFDs([]int{u.fd})
		}
	}
	return errors.Join(errs...)
}

// forgetUnmapped forgets a lane that is closed, or comes anew.
func (s *Session) forgetUnmapped(id uint16) {
	s.mu.Lock()
	u, ok := s.unmapped[id]
	delete(s.unmapped, id)
	s.mu.Unlock()
	if ok {
		shm.CloseFDs([]int{u.fd})
	}
}

// noRoomFor returns an ErrLimit if one of the lanes is not mapped.
func (s *Session) noRoomFor(lanes []uint16) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range lanes {
		if u, ok := s.unmapped[id]; ok {
			return fmt.Errorf("%w: this process has no room to map the %d bytes of a lane (RLIMIT_AS, vm.max_map_count)", ErrLimit, u.lane.Geometry.SegmentSize())
		}
	}
	return nil
}

// remindTime is how often a service looks whether there is room for a lane by now.
const remindTime = time.Second

// remind has a service try again: the requests of a lane that nobody has mapped wait. The answer to a
// question about nothing lets the goroutine that reads do so. It returns when no lane is left, or the session ends.
func (s *Session) remind() {
	tick := time.NewTicker(remindTime)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), remindTime)
		_, _ = s.Ask(ctx, &Message{Type: TypePing, Node: s.Welcome.Node}) // whatever it is, it has been read
		cancel()
		s.mu.Lock()
		left := len(s.unmapped)
		s.reminding = left > 0
		s.mu.Unlock()
		if left == 0 {
			return
		}
	}
}
