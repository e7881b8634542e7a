//go:build libfabric && cgo && linux

package libfabric

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

const (
	// maxDepth bounds the depths of an endpoint. What the provider has no room for waits.
	maxDepth = 16 << 10
	// maxInline bounds what an operation carries itself, whatever the provider takes.
	maxInline = 256
)

// Device implements fabric.Device: a domain of a provider of libfabric. Its methods may be
// called from any goroutine. One goroutine of its own takes and sends control messages; it
// ends with Close.
type Device struct {
	lib      cDevice
	cfg      Config
	info     rawInfo
	source   string
	delivery bool // completions say that data has landed in the peer's memory
	notices  bool // immediates go as messages
	waits    bool // completion queues have descriptors
	limits   fabric.Caps
	host     uint64

	ctl     *control
	ctlName []byte
	bell    *shm.Bell // wakes the goroutine
	wg      sync.WaitGroup

	mu sync.Mutex
	// closed is set by Close; the rest of the fields is guarded by mu, too.
	closed    bool
	endpoints map[token]*Endpoint
	peers     map[string]*controlPeer
	unused    []*controlPeer // that are to be forgotten when nothing is on its way
	outbox    []letter
	// last is until when a device that is closed has time for what it has to say.
	last     time.Time
	partings int // looks at what it has to say since then
	// unmapped: the control endpoint cannot be closed, see files.go.
	unmapped bool
	queues   int
	domains  int
	// left counts domains that the library keeps open, see protectionDomain.release.
	left int
}

func newDevice(cfg Config, lib cDevice, info rawInfo, q query) (*Device, error) {
	d := &Device{
		lib: lib, cfg: cfg, info: info, source: q.node, delivery: q.delivery, notices: q.notices, waits: waits(lib), host: hostID(),
		endpoints: make(map[token]*Endpoint), peers: make(map[string]*controlPeer),
	}
	if why := cmp.Or(info.unfit(), info.asksTooMuch()); why != "" {
		return nil, &OpenError{Key: "provider", Err: ErrCapability, Detail: cfg.Provider + ": " + why}
	}
	d.limits = fabric.Caps{
		MaxSendDepth: maxDepth, MaxRecvDepth: maxDepth,
		Atomics: atomics(lib), UnsizedImm: !q.notices && info.Limits.Data < 8, Protection: fabric.ProtectionVague,
		LateAccess: true, // keys are looked at when a request begins to arrive, and addresses used until it has
	}
	if injects(lib) {
		d.limits.MaxInline = int(min(maxInline, info.Limits.Inject))
	}
	if info.Provider == shmProvider {
		d.limits.Protection = fabric.ProtectionNone
	}
	return d, nil
}

// dataSize is how many bytes come with a write, 0 where immediates are messages: ends of different kinds cannot be
// connected.
func (d *Device) dataSize() uint8 {
	if d.notices {
		return 0
	}
	return uint8(min(d.info.Limits.Data, 8))
}

// hostID is the same for processes of one user and one boot of a machine.
func hostID() uint64 {
	h := fnv.New64a()
	// Without it two machines look like one, and the provider finds nothing of the other.
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	fmt.Fprintf(h, "%s %d", boot, os.Getuid())
	return h.Sum64()
}

// start opens what connections need and starts the device's goroutine.
func (d *Device) start() error {
	if d.info.Provider == shmProvider {
		sweep()
	}
	var err error
	if d.bell, err = shm.NewBell(); err != nil {
		return err
	}
	if d.ctl, err = openControl(d.lib); err != nil {
		var ce *CallError
		if d.source != "" && errors.As(err, &ce) && ce.Code == errNoAddress {
			return &OpenError{Key: "source", Err: errors.Join(ErrSource, err), Detail: fmt.Sprintf("%q; %s", d.source, ownAddresses(d.cfg.Provider))}
		}
		return explainMemory(err, d.cfg.Provider)
	}
	if d.ctlName, err = d.ctl.name(); err != nil {
		return err
	}
	if len(d.ctlName) == 0 || len(d.ctlName) > maxName {
		return &OpenError{Key: "provider", Err: ErrCapability, Detail: fmt.Sprintf("its addresses have %d bytes", len(d.ctlName))}
	}
	d.moveIn()
	d.wg.Add(1)
	go d.serve()
	return nil
}

// Describe says in one line what was opened, and how.
func (d *Device) Describe() string {
	s := fmt.Sprintf("%s %s, domain %s", d.info.Provider, d.info.Version, d.info.Domain)
	if d.source != "" {
		s += ", address " + d.source
	}
	s += ", " + d.info.Progress + " progress"
	if !d.waits {
		s += ", queues without a descriptor"
	}
	if d.notices {
		s += ", immediates as messages"
	}
	if !d.delivery {
		s += ", completions without a word of the peer's memory"
	}
	return s
}

// Caps implements fabric.Device.
func (d *Device) Caps() fabric.Caps { return d.limits }

// Close implements fabric.Device. It returns an error, and leaves the device open for its
// users, if there are any left.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	if n := d.queues + d.domains; n > 0 {
		d.mu.Unlock()
		return fmt.Errorf("libfabric: %s is closed while %d of its queues and protection domains are open", d.info.Provider, n)
	}
	d.closed, d.last = true, time.Now().Add(lastTime)
	d.mu.Unlock()
	d.moveOut()
	var errs []error
	if d.bell != nil {
		d.bell.Ring()
		d.wg.Wait()
	}
	if !d.unmapped {
		if d.ctl != nil {
			errs = append(errs, d.ctl.close())
		}
		if d.left == 0 {
			errs = append(errs, closeDevice(d.lib))
		}
	}
	if d.bell != nil {
		errs = append(errs, d.bell.Close())
	}
	return errors.Join(errs...)
}

var _ fabric.Device = (*Device)(nil)
