package attach

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// Region is shared memory that this worker has asked its daemon for: handlers of
// its requests can be given access to it, and its own handlers can use it as the
// local memory of their operations. Its methods are safe for concurrent use.
type Region struct {
	session *Session
	id      slots.RegionID
	size    int

	mu  sync.Mutex
	seg *shm.Segment // nil when it is free
	// exported are the nodes that the daemon is known to have told of the region.
	exported map[string]bool
}

// Of reports whether the region is one of the session's.
func (r *Region) Of(s *Session) bool { return r.session == s }

// AllocRegion makes a region of n bytes, all zero. What the pool keeps in vain makes room for
// it. If ctx ends first, a region that the daemon still makes is freed. Errors: ErrLimit,
// ErrInvalid, ErrClosed, or ctx's.
func (s *Session) AllocRegion(ctx context.Context, n int) (*Region, error) {
	r, err := s.allocRegion(ctx, n)
	if errors.Is(err, ErrLimit) && !errors.Is(err, errCoresEnded) && s.Pool.drop() {
		r, err = s.allocRegion(ctx, n)
	}
	return r, err
}

func (s *Session) allocRegion(ctx context.Context, n int) (*Region, error) {
	if n < 1 || n > math.MaxInt-shm.HeaderSize {
		return nil, fmt.Errorf("%w: a region of %d bytes", ErrInvalid, n)
	}
	type outcome struct {
		r   *Region
		err error
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	// Those whose ctx has ended go on asking while the daemon stands still: so many, and no more.
	select {
	case s.allocs <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.done:
		return nil, s.Err()
	}
	c := make(chan outcome)
	go func() {
		defer func() { <-s.allocs }()
		r, err := s.alloc(n)
		select {
		case c <- outcome{r, err}:
		case <-ctx.Done(): // nobody wants it any more
			if r != nil {
				_ = r.Free()
			}
		}
	}()
	select {
	case o := <-c:
		return o.r, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Session) alloc(n int) (*Region, error) {
	faultpoint.Here("region.before_ask")
	a, err := s.Ask(context.Background(), &Message{Type: TypeAlloc, Region: &RegionInfo{Size: int64(n)}})
	faultpoint.Here("region.answered")
	if err != nil {
		return nil, err
	}
	if a.taken == nil {
		return nil, fmt.Errorf("%w: a %q message instead of a region", ErrInvalid, a.Type)
	}
	return a.taken, nil
}

// region maps the region that has come with m for whoever has asked for it.
func (s *Session) region(m *Message, fds []int) error {
	if m.Region == nil || len(fds) != 1 && !m.lost || m.Region.Size < 1 || m.Region.Size > math.MaxInt-shm.HeaderSize {
		return fmt.Errorf("%w: a malformed region message", ErrInvalid)
	}
	faultpoint.Here("region.received")
	id := m.Region.ID()
	s.mu.Lock()
	q := s.pending[m.Seq]
	known := s.regions[id] != nil
	s.mu.Unlock()
	if known {
		return nil // a question that was asked again has two answers
	}
	if q == nil || q.m.Type != TypeAlloc {
		_ = s.Tell(&Message{Type: TypeFree, Region: InfoOf(id)}) // fails if the session ends
		return nil
	}
	if m.Region.Size < q.m.Region.Size {
		return fmt.Errorf("%w: a region of %d bytes instead of %d", ErrInvalid, m.Region.Size, q.m.Region.Size)
	}
	if m.lost {
		return s.forgo(m, shm.ErrFDsLost)
	}
	var err error
	r := &Region{session: s, id: id, size: int(q.m.Region.Size), exported: make(map[string]bool)}
	if r.seg, err = s.open(fds[0], shm.KindRegion, shm.HeaderSize+int(m.Region.Size)); err != nil {
		if errno := unix.Errno(0); errors.As(err, &errno) {
			return s.forgo(m, err) // there is no room for the mapping
		}
		return err
	}
	m.taken = r
	s.mu.Lock()
	s.regions[id] = r
	s.mu.Unlock()
	s.answer(m)
	return nil
}

// forgo gives a region back that this process has no room for: a descriptor, or a mapping.
func (s *Session) forgo(m *Message, why error) error {
	_ = s.Tell(&Message{Type: TypeFree, Region: m.Region}) // fails if the session ends
	m.Fail = FailFor(fmt.Errorf("%w: a region of %d bytes: %w", ErrLimit, m.Region.Size, why))
	s.answer(m)
	return nil
}

// ID returns the region's id.
func (r *Region) ID() slots.RegionID { return r.id }

// Len returns the size in bytes that was asked for.
func (r *Region) Len() int { return r.size }

// Bytes returns the memory, which is page-aligned; nil when the region is free. It
// must not be used after Free or the end of the session.
func (r *Region) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seg == nil {
		return nil
	}
	return r.seg.Bytes()[shm.HeaderSize : shm.HeaderSize+r.size : shm.HeaderSize+r.size]
}

// RegionOf returns the region of which b is a part, and where in it b begins, or nil.
func (s *Session) RegionOf(b []byte) (r *Region, off int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.regions {
		if off, ok := shm.Within(r.Bytes(), b); ok {
			return r, off
		}
	}
	return nil, 0
}

// Ref makes a reference to the n bytes at off. Errors wrap ErrInvalid.
func (r *Region) Ref(off, n int, rights slots.Rights) (slots.Ref, error) {
	r.mu.Lock()
	free := r.seg == nil
	r.mu.Unlock()
	switch {
	case free:
		return slots.Ref{}, fmt.Errorf("%w: the region is free", ErrInvalid)
	case off < 0 || n < 0 || !slots.Inside(uint64(off), uint64(n), uint64(r.size)):
		return slots.Ref{}, fmt.Errorf("%w: %d bytes at %d of a region of %d bytes", ErrInvalid, n, off, r.size)
	case rights == 0 || rights&^slots.AllRights != 0:
		return slots.Ref{}, fmt.Errorf("%w: rights %#x", ErrInvalid, uint32(rights))
	}
	return slots.Ref{Region: r.id, Rights: rights, Offset: uint64(off), Length: uint64(n)}, nil
}

// Export makes the region known to a node, unless it is known there. Errors:
// ErrInvalid when the region is free, ErrNoService when the node is not there,
// ErrLimit, ErrClosed, or ctx's.
func (r *Region) Export(ctx context.Context, node string) error {
	r.mu.Lock()
	known, free := r.exported[node], r.seg == nil
	r.mu.Unlock()
	switch {
	case free:
		return fmt.Errorf("%w: the region is free", ErrInvalid)
	case known:
		return nil
	}
	faultpoint.Here("export.before")
	if _, err := r.session.Ask(ctx, &Message{Type: TypeExport, Node: node, Region: InfoOf(r.id)}); err != nil {
		return err
	}
	faultpoint.Here("export.after")
	r.mu.Lock()
	r.exported[node] = true
	r.mu.Unlock()
	return nil
}

// forgottenByAll notes that no node knows the region any more.
func (r *Region) forgottenByAll() {
	r.mu.Lock()
	clear(r.exported)
	r.mu.Unlock()
}

// Forgotten notes that a node does not know the region any more.
func (r *Region) Forgotten(node string) {
	r.mu.Lock()
	delete(r.exported, node)
	r.mu.Unlock()
}

// Forgotten notes that a node does not know the session's regions any more.
func (s *Session) Forgotten(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.regions {
		r.Forgotten(node)
	}
}

// Free unmaps the region at once. The daemon keeps its memory until every request
// that refers to it, and every operation that uses it, has ended. Again it does
// nothing.
func (r *Region) Free() error {
	r.mu.Lock()
	seg := r.seg
	r.seg = nil
	r.mu.Unlock()
	if seg == nil {
		return nil
	}
	s := r.session
	s.mu.Lock()
	mapped := s.segs[seg]
	delete(s.segs, seg)
	delete(s.regions, r.id)
	ended := s.err
	s.mu.Unlock()
	if mapped {
		if err := seg.Close(); err != nil {
			return err
		}
	}
	if ended != nil {
		return nil // the daemon has freed it, or is gone
	}
	faultpoint.Here("region.unmapped")
	err := s.Tell(&Message{Type: TypeFree, Region: InfoOf(r.id)})
	faultpoint.Here("region.freed")
	return err
}
