//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/ledger"
)

// protectionDomain implements fabric.ProtectionDomain with a domain of libfabric: a key is
// good only for endpoints of the domain where it was registered.
type protectionDomain struct {
	dev *Device
	pd  cPD

	mu     sync.Mutex
	closed bool // guarded by mu, as the next
	kept   int  // endpoints that are closed late
	// open counts regions and endpoints that are not closed, and all endpoints of shm, which leaves nothing.
	open atomic.Int64
}

// AllocPD implements fabric.Device.
func (d *Device) AllocPD() (fabric.ProtectionDomain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fabric.ErrClosed
	}
	pd, err := openPD(d.lib)
	if err != nil {
		return nil, err
	}
	d.domains++
	return &protectionDomain{dev: d, pd: pd}, nil
}

// Close implements fabric.ProtectionDomain.
func (p *protectionDomain) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if p.kept > 0 {
		p.closed = true
		return nil
	}
	return p.release()
}

// release closes the library's domain; p.mu is held. The layer rxm registers a message that is too large for its buffers, and
// keeps that registration for good when the endpoint is closed before the peer has fetched the message. Then the
// domain is left as it is: without endpoints nobody reaches it.
func (p *protectionDomain) release() error {
	err := closePD(p.pd)
	var ce *CallError
	left := errors.As(err, &ce) && ce.Code == errBusy && p.open.Load() == 0
	if err != nil && !left {
		return fmt.Errorf("libfabric: protection domain in use: %w", err)
	}
	p.closed = true
	p.dev.mu.Lock()
	defer p.dev.mu.Unlock()
	p.dev.domains--
	if left {
		p.dev.left++
	}
	return nil
}

// keep delays the end of the library's domain until letGo.
func (p *protectionDomain) keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept++
}

func (p *protectionDomain) letGo() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept--; p.kept > 0 || !p.closed {
		return nil
	}
	return p.release()
}

// region implements fabric.MemoryRegion. Bytes and Remote may be called from any
// goroutine, Close too; a work request that is posted at the same moment may still
// be taken and fail.
type region struct {
	pd     *protectionDomain
	mem    []byte
	lib    *pinned
	closed atomic.Bool
}

// newKey returns a key of size bytes that nobody can guess.
func newKey(size uint64) uint64 {
	k := random64()
	if size < 8 {
		k &= 1<<(8*size) - 1
	}
	// The one after it is used, too, and neither may be what stands for "any".
	return max(1, k&^(1<<(8*min(size, 8)-1)))
}

// Register implements fabric.ProtectionDomain. libfabric has no right of its own for
// atomics: they need those to write and to read, so a region with the right to atomics alone
// allows nothing, and one with the other two allows atomics.
func (p *protectionDomain) Register(mem []byte, access fabric.Access) (fabric.MemoryRegion, error) {
	if len(mem) == 0 {
		return nil, fabric.ErrInvalid
	}
	lib, err := register(p.pd, mem, access, p.dev.info.Limits.Key)
	if err != nil {
		return nil, fmt.Errorf("libfabric: registration of %d bytes: %w", len(mem), explainMemory(err, p.dev.cfg.Provider))
	}
	p.open.Add(1)
	return &region{pd: p, mem: mem, lib: lib}, nil
}

// Bytes implements fabric.MemoryRegion.
func (r *region) Bytes() []byte { return r.mem }

// Remote implements fabric.MemoryRegion.
func (r *region) Remote() fabric.RemoteKey {
	k := fabric.RemoteKey{Key: r.lib.key(), Len: uint64(len(r.mem))}
	if r.pd.dev.info.mrMode&mrVirtual != 0 {
		k.Addr = r.lib.addr
	}
	return k
}

// Close implements fabric.MemoryRegion.
func (r *region) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	if err := r.lib.unregister(); err != nil {
		r.closed.Store(false) // it is registered still, and can be closed once more
		return err
	}
	r.pd.open.Add(-1)
	return nil
}

// local returns the address and descriptor of l if it is inside an open region of p. An
// empty l needs no region.
func (p *protectionDomain) local(l *fabric.Local) (addr, desc uint64, ok bool) {
	if l.Len == 0 {
		return 0, 0, true
	}
	r, ok := l.Region.(*region)
	if !ok || r == nil || r.pd != p || r.closed.Load() {
		return 0, 0, false
	}
	if !ledger.Within(l, uint64(len(r.mem))) {
		return 0, 0, false
	}
	return r.lib.addr + l.Offset, r.lib.desc(), true
}
