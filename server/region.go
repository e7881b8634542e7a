package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Errors of operations on regions. All come in a *RegionError, for which
// errors.Is(err, ErrRegion) is true. An operation that ends in one of them has
// changed no byte, except with ErrLost and ErrClosed, and except that the bytes before
// those that failed, of an operation of more than 64 KiB, may have been written.
var (
	// ErrRegion is wrapped by the error of every operation that failed.
	ErrRegion = errors.New("operation on a region")
	// ErrNotPermitted is returned when the request does not give the right, or the
	// local memory is not a region of this server.
	ErrNotPermitted = errors.New("not permitted")
	// ErrOutOfBounds is returned for bytes beyond the part of the region that the
	// request refers to, or beyond the local region.
	ErrOutOfBounds = errors.New("out of bounds")
	// ErrMisaligned is returned for an atomic operation whose place in the region
	// is not a multiple of 8.
	ErrMisaligned = errors.New("misaligned")
	// ErrExpired is returned after the handler has returned, also by Call.Reply.
	ErrExpired = errors.New("the call is over")
	// ErrUnsupported is returned for an atomic operation over a fabric that has
	// none.
	ErrUnsupported = errors.New("not supported by the fabric")
	// ErrLost is returned when the link to the caller's node was lost and has not come
	// back in time (node.link_hold), or when one of the two daemons was replaced: a
	// write or an atomic operation may have been done. A link that comes back in time
	// delays reads and writes; of atomic operations, which are never done twice,
	// those that may have been done end in ErrLost.
	ErrLost = errors.New("connection lost")
)

// RegionError is the error of an operation on a region.
type RegionError struct {
	// Op is what was tried: "write", "read", "compare and swap" or "fetch and add".
	Op string
	// Off and Len are where in the region, and how many bytes. Both are 0 for a WriteScattered
	// of which no single piece is to blame.
	Off int64
	Len int
	// Size is how many bytes the request refers to.
	Size int
	// Err is one of the errors above, or ErrInvalid, ErrLimit or ErrClosed.
	Err error
}

// Error names the operation, and where it was to be.
func (e *RegionError) Error() string {
	if e.Off == 0 && e.Len == 0 {
		return fmt.Sprintf("%s on a region of %d bytes: %v", e.Op, e.Size, e.Err)
	}
	return fmt.Sprintf("%s of %d bytes at %d of a region of %d bytes: %v", e.Op, e.Len, e.Off, e.Size, e.Err)
}

// Is makes errors.Is(err, ErrRegion) true.
func (e *RegionError) Is(target error) bool { return target == ErrRegion }

// Unwrap returns Err.
func (e *RegionError) Unwrap() error { return e.Err }

// opErrors is the one table of how operations end.
var opErrors = [...]error{
	slots.OpOK:           nil,
	slots.OpNotPermitted: ErrNotPermitted,
	slots.OpOutOfBounds:  ErrOutOfBounds,
	slots.OpMisaligned:   ErrMisaligned,
	slots.OpExpired:      ErrExpired,
	slots.OpLost:         ErrLost,
	slots.OpInvalid:      ErrInvalid,
	slots.OpNoMemory:     ErrLimit,
	slots.OpUnsupported:  ErrUnsupported,
}

// opError returns the error of a status.
func opError(s slots.OpStatus) error {
	if int(s) < len(opErrors) {
		return opErrors[s]
	}
	return ErrInvalid
}

// Region is memory of this server that its handlers use as the local side of
// operations on regions of callers, so that nothing is copied in between. Its methods
// are safe for concurrent use.
type Region struct{ r *attach.Region }

// RegionRef is a part of a Region. The zero RegionRef refers to nothing.
type RegionRef struct {
	region *attach.Region
	off, n uint64
}

// AllocRegion makes a region of n bytes, all zero. The memory is taken at once, from
// what the daemon's configuration allows each process (limits.region_bytes and
// limits.region_count). It lives until Free or Close. Errors: ErrLimit, ErrInvalid,
// ErrClosed, or ctx's.
func (s *Server) AllocRegion(ctx context.Context, n int) (*Region, error) {
	r, err := s.session.AllocRegion(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("server: region: %w", err)
	}
	return &Region{r}, nil
}

// Bytes returns the memory, which starts on a page boundary; nil after Free. It must
// not be used after Free or Server.Close, which unmap it.
func (r *Region) Bytes() []byte { return r.r.Bytes() }

// Len returns the size in bytes.
func (r *Region) Len() int { return r.r.Len() }

// Ref makes a reference to the n bytes at off. Errors: ErrInvalid for a part that is
// not within the region, and after Free.
func (r *Region) Ref(off, n int) (RegionRef, error) {
	ref, err := r.r.Ref(off, n, slots.AllRights)
	if err != nil {
		return RegionRef{}, fmt.Errorf("server: region: %w", err)
	}
	return RegionRef{region: r.r, off: ref.Offset, n: ref.Length}, nil
}

// Len returns the size of the part in bytes.
func (r RegionRef) Len() int { return int(r.n) }

// Free unmaps the region at once; its bytes must not be used any more. The daemon
// keeps the memory until operations that use it have ended. Freeing again does
// nothing.
func (r *Region) Free() error {
	if err := r.r.Free(); err != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("server: region: %w", err)
	}
	return nil
}
