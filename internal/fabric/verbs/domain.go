//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/ledger"
)

// protectionDomain implements fabric.ProtectionDomain.
type protectionDomain struct {
	dev *Device
	pd  cPD

	mu     sync.Mutex
	closed bool // guarded by mu
}

// AllocPD implements fabric.Device.
func (d *Device) AllocPD() (fabric.ProtectionDomain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fabric.ErrClosed
	}
	pd, err := allocPD(d.ctx)
	if err != nil {
		if errors.Is(err, unix.ENOMEM) {
			err = &LimitError{What: "protection domain", Asked: 1, Limit: uint64(d.info.Limits.MaxPD), Err: err}
		}
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
	if err := deallocPD(p.pd); err != nil {
		return fmt.Errorf("verbs: protection domain in use: %w", err)
	}
	p.closed = true
	p.dev.mu.Lock()
	p.dev.domains--
	p.dev.mu.Unlock()
	return nil
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

// Register implements fabric.ProtectionDomain. The remote address is the virtual
// one. It fails with a *LimitError if the memory cannot be locked.
func (p *protectionDomain) Register(mem []byte, access fabric.Access) (fabric.MemoryRegion, error) {
	if len(mem) == 0 {
		return nil, fabric.ErrInvalid
	}
	if !p.dev.limits.Atomics {
		access &^= fabric.AccessRemoteAtomic
	}
	l := p.dev.info.Limits
	if uint64(len(mem)) > l.MaxMRSize {
		return nil, &LimitError{What: "memory region in bytes", Asked: uint64(len(mem)), Limit: l.MaxMRSize}
	}
	lib, err := register(p.pd, mem, access)
	if err != nil {
		return nil, registerError(err, len(mem), l)
	}
	return &region{pd: p, mem: mem, lib: lib}, nil
}

// registerError adds what the system allows to a failed registration.
func registerError(err error, size int, l Limits) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) || errno != unix.ENOMEM && errno != unix.EAGAIN {
		return err
	}
	le := &LimitError{What: "registration of memory in bytes", Asked: uint64(size), Err: err,
		Hint: fmt.Sprintf("raise RLIMIT_MEMLOCK (LimitMEMLOCK=infinity, ulimit -l), or the device's %d regions are used up", l.MaxMR)}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) == nil && r.Cur != unix.RLIM_INFINITY {
		le.Limit = r.Cur
	}
	return le
}

// Bytes implements fabric.MemoryRegion.
func (r *region) Bytes() []byte { return r.mem }

// Remote implements fabric.MemoryRegion.
func (r *region) Remote() fabric.RemoteKey {
	return fabric.RemoteKey{Addr: r.lib.addr, Key: uint64(r.lib.rkey), Len: uint64(len(r.mem))}
}

// Close implements fabric.MemoryRegion.
func (r *region) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	err := r.lib.unregister()
	if err != nil {
		r.closed.Store(false) // it is registered still, and can be closed once more
	}
	return err
}

// local returns the address and key of l if it is inside an open region of p. An
// empty l needs no region.
func (p *protectionDomain) local(l *fabric.Local) (addr uint64, key uint32, ok bool) {
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
	return r.lib.addr + l.Offset, r.lib.lkey, true
}
