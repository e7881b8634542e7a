package client

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// laneSet is the lanes of one class that lead to the same place.
type laneSet struct {
	lanes []*lane // by number; always the same ones
	geo   slots.Geometry
	// single is the capacity of one slot.
	single int
	// least: requests take the lane with the fewest outstanding ones of this
	// process; otherwise they take turns.
	least bool
	turn  atomic.Uint32
}

// newLaneSets sorts the lanes of a route, smallest slots first, into sets.
func newLaneSets(lanes []*lane, least bool) (sets []*laneSet) {
	for _, l := range lanes {
		if n := len(sets); n > 0 && sets[n-1].lanes[0].class == l.class {
			sets[n-1].lanes = append(sets[n-1].lanes, l)
			continue
		}
		s := &laneSet{lanes: []*lane{l}, geo: l.ring.Geometry(), single: l.single, least: least}
		s.turn.Store(uint32(l.conn.id)) // processes do not all begin with the same lane
		sets = append(sets, s)
	}
	for _, s := range sets {
		for _, l := range s.lanes {
			l.counted.Store(least && len(s.lanes) > 1)
		}
	}
	return sets
}

// first returns which lane a request tries first.
func (s *laneSet) first() int {
	n := len(s.lanes)
	if !s.least {
		return int(s.turn.Add(1) % uint32(n))
	}
	start := s.lanes[0].conn.id % n
	best, fewest := start, s.lanes[start].open.Load()
	for k := 1; k < n && fewest > 0; k++ {
		i := (start + k) % n
		if open := s.lanes[i].open.Load(); open < fewest {
			best, fewest = i, open
		}
	}
	return best
}

// pinned returns the lane of all requests with the same key.
func (s *laneSet) pinned(key uint64) *lane { return s.lanes[key%uint64(len(s.lanes))] }

// claim takes a run of slots in one of the lanes. One that is full is waited for only when all
// that are open are full. closed says that some are closed; an error that is slots.ErrClosed,
// that all are.
func (s *laneSet) claim(ctx context.Context, w wish) (l *lane, u slots.Run, closed bool, err error) {
	first, n := s.first(), len(s.lanes)
	for {
		var full *lane
		var why error // of full
		closed = false
		for i := range n {
			l = s.lanes[(first+i)%n]
			u, err = l.claim(ctx, wish{run: w.run, noWait: true, patient: w.patient, waited: w.waited})
			switch {
			case errors.Is(err, slots.ErrClosed):
				closed = true
			case !errors.Is(err, ErrBackpressure):
				return l, u, closed, err
			case full == nil:
				full, why = l, err
			}
		}
		if full == nil {
			return nil, u, true, slots.ErrClosed
		}
		if w.noWait {
			return nil, u, closed, why
		}
		// Whoever frees slots of this lane ends the wait. It is bounded because
		// another lane may have room before.
		if w.since == 0 {
			w.since = shm.Nanotime()
		}
		w.elsewhere = true
		w.waited = shm.Nanotime()-w.since >= int64(keptFor)
		u, err = full.claim(ctx, w)
		if !errors.Is(err, errElsewhere) && (!errors.Is(err, slots.ErrClosed) || ctx.Err() != nil) {
			return full, u, closed, err
		}
	}
}
