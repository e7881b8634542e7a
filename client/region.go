package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/slots"
)

// Rights are what a handler may do with a region that a request refers to.
type Rights = slots.Rights

const (
	// MayWrite lets the handler write.
	MayWrite Rights = slots.RightWrite
	// MayRead lets the handler read.
	MayRead Rights = slots.RightRead
	// MayAtomic lets the handler compare and swap, and fetch and add.
	MayAtomic Rights = slots.RightAtomic
)

// MaxRegions is how many regions a request can refer to.
const MaxRegions = slots.MaxRefs

// Region is memory that handlers of requests can be given access to, on other nodes
// by one-sided operations of the network: no code of this process runs while they
// read and write it. Its methods are safe for concurrent use.
type Region struct{ r *attach.Region }

// RegionRef is a part of a region with what a handler may do with it. Requests
// carry it; see Method.CallRegions. The zero RegionRef refers to nothing.
type RegionRef struct {
	region *attach.Region
	ref    slots.Ref
}

// AllocRegion makes a region of n bytes, all zero. The memory is taken at once, from
// what the daemon's configuration allows each process (limits.region_bytes and
// limits.region_count). It lives until Free, or until the connection ends. Errors:
// ErrLimit, ErrInvalid, ErrClosed, or ctx's.
func (c *Conn) AllocRegion(ctx context.Context, n int) (*Region, error) {
	if !c.gate.enter() {
		return nil, fmt.Errorf("client: region: %w", c.endError())
	}
	defer c.gate.leave()
	r, err := c.session.AllocRegion(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("client: region: %w", err)
	}
	return &Region{r}, nil
}

// Bytes returns the memory, which starts on a page boundary; nil after Free. Handlers
// that have access may change it at any time until their request has its outcome. It
// must not be used after Free or Conn.Close, which unmap it.
func (r *Region) Bytes() []byte { return r.r.Bytes() }

// Len returns the size in bytes.
func (r *Region) Len() int { return r.r.Len() }

// Ref makes a reference to the n bytes at off, with the given rights. Errors:
// ErrInvalid for a part that is not within the region, for no rights, and after Free.
func (r *Region) Ref(off, n int, rights Rights) (RegionRef, error) {
	ref, err := r.r.Ref(off, n, rights)
	if err != nil {
		return RegionRef{}, fmt.Errorf("client: region: %w", err)
	}
	return RegionRef{r.r, ref}, nil
}

// Free unmaps the region at once; its bytes must not be used any more. Requests
// that are under way with references to it go on: the daemon keeps the memory until
// they have ended. Freeing again does nothing. An error is the kernel's, which refuses to unmap.
func (r *Region) Free() error {
	if err := r.r.Free(); err != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("client: region: %w", err)
	}
	return nil
}

// CallRegions is Conn.Call for a request with references to regions; see
// Method.CallRegions.
func (c *Conn) CallRegions(ctx context.Context, target string, req []byte, refs ...RegionRef) ([]byte, error) {
	m, err := c.Method(ctx, target)
	if err != nil {
		return nil, err
	}
	return m.CallRegions(ctx, req, refs...)
}

// CallRegions is Call for a request that refers to up to MaxRegions regions of this
// connection, which the handler can use, as their rights say, until its answer
// arrives. The first request with a region to a node makes the region known there,
// which takes a round trip. If the node has forgotten it since, that is done again, and
// the request is sent again, up to 8 times within ctx.
//
// A call that returns because its context has ended leaves the handler with its
// access; so does, for a moment, one that ends in ErrMaybeExecuted. Besides the
// errors of Call: ErrInvalid for a reference that Ref has not made or whose region is
// free or of another connection, and of a method with Idempotent.
func (m *Method) CallRegions(ctx context.Context, req []byte, refs ...RegionRef) ([]byte, error) {
	return m.CallRegionsInto(ctx, req, nil, refs...)
}

// CallRegionsInto is CallRegions with a buffer for the answer; see CallInto.
func (m *Method) CallRegionsInto(ctx context.Context, req, dst []byte, refs ...RegionRef) ([]byte, error) {
	for repeats, rerouted := 0, false; ; {
		answer, err := m.callRegionsOnce(ctx, req, dst, refs)
		if rerouted || repeats > 0 {
			err = secondTry(err)
		}
		switch { // what was cached is forgotten
		case err == nil:
			return answer, nil
		case errors.Is(err, ErrNotExported) && errors.Is(err, ErrNotExecuted) && repeats < maxRepeats && ctx.Err() == nil:
			repeats++
		case refused(err) && !rerouted:
			rerouted = true
		default:
			return nil, err
		}
	}
}

func (m *Method) callRegionsOnce(ctx context.Context, req, dst []byte, refs []RegionRef) ([]byte, error) {
	f, peer, err := m.startRegions(ctx, req, dst, refs)
	if err != nil {
		return nil, err
	}
	answer, err := f.await(ctx)
	if err != nil && errors.Is(err, ErrNotExported) {
		for i := range refs {
			refs[i].region.Forgotten(peer)
		}
	}
	return answer, err
}

// GoRegions is Go for a request with references to regions; see CallRegions. The
// outcome of one that comes to a node that has forgotten the regions is
// ErrNotExported: nothing is sent again.
func (m *Method) GoRegions(ctx context.Context, req []byte, refs ...RegionRef) (*Future, error) {
	f, _, err := m.startRegions(ctx, req, nil, refs)
	return f, err
}

func (m *Method) startRegions(ctx context.Context, req, dst []byte, refs []RegionRef) (*Future, string, error) {
	if m.opts.idempotent {
		return nil, "", m.notAgain("a request with references to regions")
	}
	if len(refs) > MaxRegions {
		return nil, "", fmt.Errorf("client: %s: %w: %d references to regions, at most %d", m.name, ErrInvalid, len(refs), MaxRegions)
	}
	if !m.conn.gate.enter() {
		return nil, "", m.closed()
	}
	defer m.conn.gate.leave()
	for range maxReroutes {
		peer, err := m.exportAll(ctx, refs)
		if err != nil {
			return nil, "", err
		}
		var d draft
		if err := m.claim(ctx, len(refs)*slots.RefSize+len(req), &d); err != nil {
			return nil, "", err
		}
		if d.l.peer != peer {
			d.l.abort(d.u) // the method has moved meanwhile
			continue
		}
		p := d.l.ring.Payload(d.u)
		for i := range refs {
			refs[i].ref.Encode(p[i*slots.RefSize:])
		}
		copy(p[len(refs)*slots.RefSize:], req)
		if d.h.Refs = uint8(len(refs)); d.h.Refs > 0 {
			d.h.Flags |= slots.FlagRefs
		}
		f, err := m.commit(&d, nil, &sink{dst: dst})
		if err == nil || !errors.Is(err, slots.ErrClosed) {
			return f, peer, err
		}
		m.lost(d.l)
	}
	return nil, "", m.elusive()
}

// exportAll makes the regions known to the node where the method's requests go, and
// returns its name.
func (m *Method) exportAll(ctx context.Context, refs []RegionRef) (peer string, err error) {
	r := m.route.p.Load()
	if r == nil {
		if r, err = m.resolve(ctx, nil, preference{}); err != nil {
			return "", err
		}
	}
	peer = r.peer()
	for i := range refs {
		g := refs[i].region
		if g == nil {
			return "", fmt.Errorf("client: %s: %w: a reference to no region", m.name, ErrInvalid)
		}
		if !g.Of(m.conn.session) {
			// Its name may be that of another one here.
			return "", fmt.Errorf("client: %s: %w: a reference to a region of another connection", m.name, ErrInvalid)
		}
		if err := g.Export(ctx, peer); err != nil {
			if ctx.Err() != nil {
				return "", m.late(ctx, false)
			}
			return "", m.noWay(err)
		}
	}
	return peer, nil
}
