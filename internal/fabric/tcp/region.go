package tcp

import (
	"crypto/rand"
	"encoding/binary"
	"reflect"
	"sync"

	"github.com/rdmad/rdmad/internal/fabric"
)

// protectionDomain is a set of regions by key. There may be tens of thousands, and a
// connection that ends closes all of them on its agent's thread: a change must cost the
// same however many there are.
type protectionDomain struct {
	dev *Device

	mu      sync.RWMutex
	regions map[uint64]*region // guarded by mu
}

// AllocPD implements fabric.Device.
func (d *Device) AllocPD() (fabric.ProtectionDomain, error) {
	return &protectionDomain{dev: d, regions: make(map[uint64]*region)}, nil
}

// Close implements fabric.ProtectionDomain.
func (p *protectionDomain) Close() error { return nil }

// find returns the region with the given key, or nil.
func (p *protectionDomain) find(key uint64) *region {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.regions[key]
}

func (p *protectionDomain) add(r *region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.regions[r.key] = r
}

func (p *protectionDomain) remove(r *region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.regions, r.key)
}

// region is registered memory.
//
// The peer's requests touch mem only between acquire and release, so that Close,
// from any goroutine, returns when nothing of the wire can touch it any more.
type region struct {
	pd     *protectionDomain
	mem    []byte
	base   uint64
	key    uint64
	access fabric.Access
	// skew is mem's address modulo 8: which offsets are aligned for atomics.
	skew uint64

	mu     sync.RWMutex
	closed bool // guarded by mu
}

// Register implements fabric.ProtectionDomain. Keys and remote addresses are
// random; they identify, they do not protect.
func (p *protectionDomain) Register(mem []byte, access fabric.Access) (fabric.MemoryRegion, error) {
	if len(mem) == 0 {
		return nil, fabric.ErrInvalid
	}
	var random [16]byte
	_, _ = rand.Read(random[:])
	r := &region{
		pd:  p,
		mem: mem,
		// Below 2^47 and in whole pages: no range of the region can wrap.
		base:   binary.LittleEndian.Uint64(random[:]) & (1<<47 - 1) &^ 0xfff,
		key:    binary.LittleEndian.Uint64(random[8:]),
		access: access,
		skew:   uint64(reflect.ValueOf(mem).Pointer()) & 7,
	}
	p.add(r)
	return r, nil
}

// Bytes implements fabric.MemoryRegion.
func (r *region) Bytes() []byte { return r.mem }

// Remote implements fabric.MemoryRegion.
func (r *region) Remote() fabric.RemoteKey {
	return fabric.RemoteKey{Addr: r.base, Key: r.key, Len: uint64(len(r.mem))}
}

// Close implements fabric.MemoryRegion. It waits for a transfer of the moment.
func (r *region) Close() error {
	r.pd.remove(r)
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return nil
}

// acquire keeps Close waiting until release. It fails when the region is closed
// or about to be. It may be nested: unlike RLock, TryRLock does not wait for a
// Close that waits for the caller.
func (r *region) acquire() bool {
	if !r.mu.TryRLock() {
		return false
	}
	if r.closed {
		r.mu.RUnlock()
		return false
	}
	return true
}

func (r *region) release() { r.mu.RUnlock() }

// slice returns the n bytes at the remote address addr if they are inside r.
func (r *region) slice(addr, n uint64) ([]byte, bool) {
	size := uint64(len(r.mem))
	off := addr - r.base
	if addr < r.base || off > size || n > size-off {
		return nil, false
	}
	return r.mem[off : off+n : off+n], true
}

// local returns the memory of l if l is inside an open region of p. An empty l
// needs no region.
func (p *protectionDomain) local(l fabric.Local) (*region, []byte, bool) {
	if l.Len == 0 {
		return nil, nil, true
	}
	r, ok := l.Region.(*region)
	if !ok || r == nil || r.pd != p {
		return nil, nil, false
	}
	size := uint64(len(r.mem))
	if l.Offset > size || uint64(l.Len) > size-l.Offset || !r.acquire() {
		return nil, nil, false
	}
	r.release()
	return r, r.mem[l.Offset : l.Offset+uint64(l.Len) : l.Offset+uint64(l.Len)], true
}
