package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/attach"
)

const (
	// stageSize is the size of a stage, and stages how many there are: the memory
	// that a service needs for operations with memory of its own.
	stageSize = 64 << 10
	stages    = 64
)

// staging is the region through which operations go whose memory is not a region.
// It is made when the first of them needs it.
type staging struct {
	session  *attach.Session
	free     chan uint16   // the stages that are nobody's
	patience time.Duration // with a daemon that stands still

	mu     sync.Mutex
	region *attach.Region
	mem    []byte
	// refused is why there is no region for those who have asked for it before retry.
	refused error
	retry   time.Time
}

func (s *staging) init(session *attach.Session) {
	s.session, s.patience = session, attach.BlockWait
	s.free = make(chan uint16, stages)
}

// ready makes the region if there is none yet. A daemon that stands still is waited for as long as for a block, by all who
// wait together: what the first of them is told, or that it was told nothing, is for those behind it, too. Handlers that
// run while the server closes need it, too.
func (s *staging) ready() error {
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.region != nil {
		return nil
	}
	if asked.Before(s.retry) {
		return s.refused
	}
	r, err := s.alloc()
	if err != nil {
		return err
	}
	s.region, s.mem = r, r.Bytes()
	for i := range stages {
		s.free <- uint16(i)
	}
	return nil
}

// alloc asks the daemon for the region. If it stands still, it is not asked again for a moment. s.mu is held.
func (s *staging) alloc() (*attach.Region, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	r, err := s.session.AllocRegion(ctx, stages*stageSize)
	if err == nil {
		return r, nil
	}
	s.refused, s.retry = err, time.Now()
	if errors.Is(err, context.DeadlineExceeded) { // not the call's
		s.refused = fmt.Errorf("%w: the daemon has made no memory for operations within %v", ErrLimit, s.patience)
		s.retry = s.retry.Add(attach.BlockPause)
	}
	return nil, s.refused
}

// take waits for a stage. Whoever has one must not wait for another: see try.
func (s *staging) take() (uint16, error) {
	select {
	case n := <-s.free:
		return n, nil
	default:
	}
	select {
	case n := <-s.free:
		return n, nil
	case <-s.session.Done():
		return 0, ErrClosed
	}
}

// try takes a stage if there is one.
func (s *staging) try() (n uint16, ok bool) {
	select {
	case n = <-s.free:
		return n, true
	default:
		return 0, false
	}
}

// give gives a stage back.
func (s *staging) give(n uint16) { s.free <- n }

// bytes returns the memory of stage n, and where it is in the region.
func (s *staging) bytes(n uint16) (mem []byte, off uint64) {
	o := int(n) * stageSize
	return s.mem[o : o+stageSize : o+stageSize], uint64(o)
}
