package fabrictest

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/shm"
)

const (
	fakeInline = 128
	fakeDepth  = 4096
	// fakeMagic starts an address.
	fakeMagic = 0x454b4146
)

// Fake is a provider whose devices work in the memory of one process: a work
// request is carried out by whichever call makes it possible, under one lock.
// Endpoints reach each other when their devices were opened by the same Fake. It
// may be used by many goroutines.
//
// It is stricter than most devices: a work request counts against SendDepth until
// its completion has been polled, and a completion queue that is full stops the
// endpoints that need it.
type Fake struct {
	mu        sync.Mutex
	serial    uint64
	endpoints map[uint64]*fakeEndpoint
}

// NewFake makes the provider.
func NewFake() *Fake { return &Fake{endpoints: make(map[uint64]*fakeEndpoint)} }

// Name implements fabric.Provider.
func (f *Fake) Name() string { return "fake" }

// Open implements fabric.Provider. The options mean nothing to it.
func (f *Fake) Open(fabric.Options) (fabric.Device, error) { return &fakeDevice{net: f}, nil }

// next returns a number that was never returned before. The caller holds f.mu.
func (f *Fake) next() uint64 {
	f.serial++
	return f.serial
}

type fakeDevice struct{ net *Fake }

func (d *fakeDevice) Caps() fabric.Caps {
	return fabric.Caps{
		MaxInline: fakeInline, MaxSendDepth: fakeDepth, MaxRecvDepth: fakeDepth,
		Atomics: true, OrderedWrites: true,
	}
}

func (d *fakeDevice) Close() error { return nil }

func (d *fakeDevice) AllocPD() (fabric.ProtectionDomain, error) { return &fakePD{dev: d}, nil }

// fakePD is a list of regions.
type fakePD struct {
	dev     *fakeDevice
	regions []*fakeRegion // guarded by dev.net.mu
}

func (p *fakePD) Close() error { return nil }

func (p *fakePD) Register(mem []byte, access fabric.Access) (fabric.MemoryRegion, error) {
	if len(mem) == 0 {
		return nil, fabric.ErrInvalid
	}
	net := p.dev.net
	net.mu.Lock()
	defer net.mu.Unlock()
	id := net.next()
	r := &fakeRegion{pd: p, mem: mem, base: id << 40, key: id * 0x9e3779b97f4a7c15, access: access}
	p.regions = append(p.regions, r)
	return r, nil
}

type fakeRegion struct {
	pd        *fakePD
	mem       []byte
	base, key uint64
	access    fabric.Access
	closed    bool // guarded by pd.dev.net.mu
}

func (r *fakeRegion) Bytes() []byte { return r.mem }

func (r *fakeRegion) Remote() fabric.RemoteKey {
	return fabric.RemoteKey{Addr: r.base, Key: r.key, Len: uint64(len(r.mem))}
}

func (r *fakeRegion) Close() error {
	r.pd.dev.net.mu.Lock()
	defer r.pd.dev.net.mu.Unlock()
	r.closed = true
	r.pd.regions = slices.DeleteFunc(r.pd.regions, func(o *fakeRegion) bool { return o == r })
	return nil
}

// local returns the memory of l, or false when l can never work.
func (p *fakePD) local(l fabric.Local) ([]byte, bool) {
	if l.Len == 0 {
		return nil, true
	}
	r, ok := l.Region.(*fakeRegion)
	if !ok || r == nil || r.pd != p || r.closed {
		return nil, false
	}
	size := uint64(len(r.mem))
	if l.Offset > size || uint64(l.Len) > size-l.Offset {
		return nil, false
	}
	return r.mem[l.Offset : l.Offset+uint64(l.Len)], true
}

// fakeCQ is a bounded queue with a bell.
type fakeCQ struct {
	dev       *fakeDevice
	depth     int
	queue     []fakeCompletion
	endpoints []*fakeEndpoint
	closed    bool

	poller *poller.Poller
	bell   *shm.Bell
	armed  bool
}

// fakeCompletion is a completion and the endpoint whose send queue it frees.
type fakeCompletion struct {
	fabric.Completion
	frees *fakeEndpoint
}

func (d *fakeDevice) CreateCQ(depth int, p *poller.Poller) (fabric.CQ, error) {
	if depth < 1 {
		return nil, fabric.ErrInvalid
	}
	q := &fakeCQ{dev: d, depth: depth, poller: p}
	if p == nil {
		return q, nil
	}
	bell, err := shm.NewBell()
	if err != nil {
		return nil, err
	}
	if err := p.Add(bell.FD(), pollIn, q); err != nil {
		_ = bell.Close()
		return nil, err
	}
	q.bell = bell
	return q, nil
}

// Ready implements poller.Handler.
func (q *fakeCQ) Ready(int, uint32) { q.bell.Silence() }

func (q *fakeCQ) room() bool { return len(q.queue) < q.depth }

func (q *fakeCQ) add(c fakeCompletion) {
	q.queue = append(q.queue, c)
	if q.armed {
		q.armed = false
		q.bell.Ring()
	}
}

// Poll implements fabric.CQ. The room it makes is used at once.
func (q *fakeCQ) Poll(c []fabric.Completion) (int, error) {
	q.dev.net.mu.Lock()
	defer q.dev.net.mu.Unlock()
	if q.closed {
		return 0, fabric.ErrClosed
	}
	n := 0
	for n < len(c) && len(q.queue) > 0 {
		for ; n < len(c) && len(q.queue) > 0; n++ {
			c[n] = q.queue[0].Completion
			if e := q.queue[0].frees; e != nil {
				e.busy--
			}
			q.queue = q.queue[1:]
		}
		for _, e := range slices.Clone(q.endpoints) {
			e.advance()
		}
	}
	return n, nil
}

// Arm implements fabric.CQ.
func (q *fakeCQ) Arm() (bool, error) {
	q.dev.net.mu.Lock()
	defer q.dev.net.mu.Unlock()
	switch {
	case q.closed:
		return false, fabric.ErrClosed
	case q.bell == nil:
		return false, fabric.ErrNotSupported
	}
	q.armed = len(q.queue) == 0
	return q.armed, nil
}

// Close implements fabric.CQ.
func (q *fakeCQ) Close() error {
	q.dev.net.mu.Lock()
	defer q.dev.net.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed, q.armed = true, false
	for _, e := range slices.Clone(q.endpoints) {
		e.end()
	}
	q.queue, q.endpoints = nil, nil
	if q.bell == nil {
		return nil
	}
	err := q.poller.Remove(q.bell.FD())
	if cerr := q.bell.Close(); err == nil {
		err = cerr
	}
	return err
}

func fakeAddress(id uint64) []byte {
	b := make([]byte, 16)
	binary.LittleEndian.PutUint64(b, fakeMagic)
	binary.LittleEndian.PutUint64(b[8:], id)
	return b
}
