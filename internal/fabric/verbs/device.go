//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// maxDepth bounds the depths of an endpoint, whatever the device allows.
const maxDepth = 16 << 10

// Description says which device was opened, and how, for logs.
type Description struct {
	Device    string     `json:"device"`
	Port      int        `json:"port"`
	LinkLayer string     `json:"link_layer"`
	GIDIndex  int        `json:"gid_index"`
	GID       netip.Addr `json:"gid"`
	GIDType   string     `json:"gid_type"`
	// Why says what spoke for the GID.
	Why string `json:"why"`
	// MTU is the largest path MTU of a connection in bytes when the device was opened.
	MTU  int    `json:"mtu"`
	Mode string `json:"mode"`
	// Listen is where the connection manager listens, with ConnectCM.
	Listen string `json:"listen,omitempty"`
}

// String says all of it in one line.
func (d Description) String() string {
	s := fmt.Sprintf("%s port %d (%s), GID %d %s %s (%s), MTU %d, connections by %s",
		d.Device, d.Port, d.LinkLayer, d.GIDIndex, d.GID, d.GIDType, d.Why, d.MTU, d.Mode)
	if d.Listen != "" {
		s += " on " + d.Listen
	}
	return s
}

// Device implements fabric.Device: a port of an RDMA device. Its methods may be
// called from any goroutine. One goroutine of its own takes the asynchronous
// events and the messages of connections; it ends with Close.
type Device struct {
	*found
	cfg    Config
	mtu    int // when it was opened; later connections may have another: see pathMTU
	inline int // bytes that a work request can really carry
	limits fabric.Caps

	ctl *datagrams // with ConnectOOB
	cm  *manager   // with ConnectCM

	bell   *shm.Bell // wakes the goroutine
	wg     sync.WaitGroup
	making sync.WaitGroup // goroutines that make ends ready
	events chan Event
	counts eventCounts

	mu sync.Mutex
	// closed is set by Close; the rest of the fields is guarded by mu, too.
	closed    bool
	endpoints map[token]*Endpoint
	queues    map[*cq]struct{}
	domains   int
	// slept is how many queues were made that can be slept on.
	slept     int
	farewells []farewell
}

// newDevice chooses what the configuration leaves open. It does not close the
// context if it fails.
func newDevice(cfg Config, f *found) (*Device, error) {
	d := &Device{
		found: f, cfg: cfg, mtu: f.port.ActiveMTU,
		events:    make(chan Event, eventBacklog),
		endpoints: make(map[token]*Endpoint),
		queues:    make(map[*cq]struct{}),
	}
	if err := f.checkPKey(cfg.PKeyIndex); err != nil {
		return nil, err
	}
	if cfg.MTU > d.mtu {
		return nil, &OpenError{Key: "mtu", Err: fabric.ErrNotSupported,
			Detail: fmt.Sprintf("%d bytes, and the active MTU of %s port %d is %d", cfg.MTU, f.name, f.port.Number, d.mtu)}
	}
	if cfg.MTU != 0 {
		d.mtu = cfg.MTU
	}
	var err error
	if d.inline, err = d.probeInline(); err != nil {
		return nil, err
	}
	depth := min(maxDepth, f.info.Limits.MaxQPWR-1, f.info.Limits.MaxCQE-2)
	d.limits = fabric.Caps{
		MaxInline: d.inline, MaxSendDepth: depth, MaxRecvDepth: depth,
		Atomics: f.info.Limits.Atomic, OrderedWrites: true,
	}
	return d, nil
}

// pathMTU is the largest path MTU of an endpoint that is made while the port has the given active MTU. A port that has none, because
// its network interface is away, counts as it was when the device was opened.
func (d *Device) pathMTU(active int) int {
	switch {
	case !validMTU(active):
		return d.mtu
	case d.cfg.MTU != 0:
		return min(d.cfg.MTU, active)
	}
	return active
}

// probeInline finds out how many bytes the device takes inline by making a queue
// pair that is not used, with less and less if it refuses.
func (d *Device) probeInline() (inline int, err error) {
	pd, err := allocPD(d.ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, deallocPD(pd)) }()
	q, err := createQueue(d.ctx, 2, false, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, q.destroy()) }()
	p, inline, err := lessInline(d.cfg.MaxInline, func(ask int) (pair, error) { return createPair(pd, q, 1, 1, ask) })
	if err != nil {
		return 0, err
	}
	return min(inline, p.inline()), p.destroy()
}

// lessInline creates something with the given number of bytes inline, or, while the device
// refuses it, with half of that. A work request with more inline is larger, so a deep
// queue may have room for less. The error is that of the first attempt.
func lessInline[T any](most int, create func(inline int) (T, error)) (made T, inline int, err error) {
	for inline = most; ; inline /= 2 {
		var refused error
		if made, refused = create(inline); refused == nil {
			return made, inline, nil
		}
		if err == nil {
			err = refused
		}
		if inline == 0 {
			return made, 0, err
		}
	}
}

// start opens what connections need and starts the device's goroutine.
func (d *Device) start(o fabric.Options) error {
	var err error
	if d.bell, err = shm.NewBell(); err != nil {
		return err
	}
	if d.cfg.Connect == ConnectCM {
		if d.cm, err = newManager(d, o); err != nil {
			return err
		}
	} else if d.ctl, err = openDatagrams(d.ctx, d.port.Number, d.cfg.PKeyIndex, random31()); err != nil {
		return &OpenError{Key: "connect", Err: err, Detail: "the device has no datagrams for control messages: set it to \"rdmacm\""}
	}
	s, err := newServer(d)
	if err != nil {
		return err
	}
	d.wg.Add(1)
	go s.run()
	d.vulnerable()
	return nil
}

// Describe says in one line which device was opened, and how.
func (d *Device) Describe() string { return d.Description().String() }

// Description says which device was opened, and how.
func (d *Device) Description() Description {
	s := Description{
		Device: d.name, Port: d.port.Number, LinkLayer: d.port.LinkLayer,
		GIDIndex: d.gid.Index, GID: d.gid.Addr, GIDType: d.gid.Type, Why: d.why, MTU: d.mtu, Mode: d.cfg.Connect,
	}
	if d.cm != nil {
		s.Listen = d.cm.listen.String()
	}
	return s
}

// Caps implements fabric.Device.
func (d *Device) Caps() fabric.Caps { return d.limits }

// Close implements fabric.Device. It returns an error, and leaves the device open
// for its users, if there are any left.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	if n := len(d.queues) + d.domains; n > 0 {
		d.mu.Unlock()
		return fmt.Errorf("verbs: %s is closed while %d of its queues and protection domains are open", d.name, n)
	}
	d.closed = true
	farewells := d.farewells
	d.farewells = nil
	d.mu.Unlock()
	d.safe()
	d.making.Wait()
	var errs []error
	if d.bell != nil {
		d.bell.Ring()
		d.wg.Wait()
	}
	for _, f := range farewells {
		errs = append(errs, d.ctl.release(f.to.ah))
	}
	if d.cm != nil {
		errs = append(errs, d.cm.close())
	}
	if d.ctl != nil {
		errs = append(errs, d.ctl.close())
	}
	errs = append(errs, closeContext(d.ctx))
	if d.bell != nil {
		errs = append(errs, d.bell.Close())
	}
	close(d.events)
	return errors.Join(errs...)
}

// path is the way to the end with the given address.
func (d *Device) path(a address) cPath {
	p := cPath{
		dlid: cUint16(a.lid), port: cUint8(d.port.Number), sgid_index: cUint8(d.gid.Index),
		sl: cUint8(d.cfg.ServiceLevel), traffic_class: cUint8(d.cfg.TrafficClass), hop_limit: cUint8(d.cfg.HopLimit),
	}
	// On InfiniBand the LID is enough within a subnet, and the GID prefix says
	// whether it is the same, unless one of the ports wants more (ibv_modify_qp(3)).
	here, there := d.gid.Addr.As16(), a.gid.As16()
	if d.port.LinkLayer == linkEthernet || [8]byte(here[:]) != [8]byte(there[:]) || d.port.GRHRequired || a.grh {
		p.is_global = 1
	}
	for i, b := range there {
		p.gid[i] = cUint8(b)
	}
	return p
}

// readsAt is how many reads and atomics this side has under way at the end at a. At one that takes none they are refused, and not kept
// waiting for ever, which nobody would hear of.
func (d *Device) readsAt(a address) int {
	return min(d.cfg.MaxReadAtomic, d.initReads, max(a.reads, 1))
}

// reads is how many reads and atomics of a peer an endpoint takes at a time.
func (d *Device) reads() int { return min(d.cfg.MaxReadAtomic, d.info.Limits.MaxRdAtomic, 255) }

var _ fabric.Device = (*Device)(nil)
