//go:build verbs && cgo && linux

package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Built reports whether the provider is compiled in.
const Built = true

// New checks the configuration and makes the provider. The error is a
// *ConfigError.
func New(cfg Config) (fabric.Provider, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &provider{cfg: cfg}, nil
}

type provider struct{ cfg Config }

// Name implements fabric.Provider.
func (p *provider) Name() string { return Name }

// Open implements fabric.Provider. With ConnectCM the listener gets the address of
// the chosen GID and the port of o.Listen; an address in o.Listen that is neither
// unspecified nor of the loopback interface must be one of the device. Errors are
// *OpenError, *CallError and *LimitError. The caller must Close the *Device.
func (p *provider) Open(o fabric.Options) (fabric.Device, error) {
	f, err := find(p.cfg)
	if err != nil {
		return nil, err
	}
	d, err := newDevice(p.cfg, f)
	if err != nil {
		return nil, errors.Join(err, closeContext(f.ctx))
	}
	if err := d.start(o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Devices describes the RDMA devices of this machine. A device that cannot be
// opened has its Err set.
func Devices() ([]DeviceInfo, error) {
	names, nodes, err := listDevices()
	if err != nil {
		return nil, err
	}
	var all []DeviceInfo
	for i, name := range names {
		info, err := describe(name)
		if err != nil {
			info = DeviceInfo{Err: err.Error()}
		}
		info.Name, info.Node = name, nodes[i]
		all = append(all, info)
	}
	return all, nil
}

// describe opens the device for as long as it takes to describe it.
func describe(name string) (info DeviceInfo, err error) {
	ctx, err := openContext(name)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, closeContext(ctx)) }()
	info, _, ports, err := queryDevice(ctx)
	if err != nil {
		return info, err
	}
	for n := 1; n <= ports; n++ {
		p, _, _, _, err := queryPort(ctx, n)
		if err != nil {
			return info, err
		}
		if p.GIDs, err = queryGIDs(ctx, n); err != nil {
			return info, err
		}
		p.Chosen, p.Why = bestGID(p.LinkLayer, p.GIDs)
		info.Ports = append(info.Ports, p)
	}
	return info, nil
}

// found is an opened device with a port that will do.
type found struct {
	ctx       cContext
	name      string
	info      DeviceInfo
	initReads int // reads and atomics that a queue pair may have under way
	port      PortInfo
	gid       GID
	why       string // what spoke for the GID
	gidTable  int
	pkeyTable int
	maxMsg    uint32
}

// portActive is the PortInfo.State of a port that works.
const portActive = "ACTIVE"

// find opens the device that the configuration names. The caller closes its
// context.
func find(cfg Config) (*found, error) {
	names, _, err := listDevices()
	if err != nil {
		return nil, &OpenError{Key: "device", Err: ErrNoDevice, Detail: "this machine has no RDMA that libibverbs sees (see: rdmad devices): " + err.Error()}
	}
	var seen []string
	var reason error = ErrNoDevice
	var without error // why the first device with an active port does not do
	for _, name := range names {
		if cfg.Device != "" && name != cfg.Device {
			seen = append(seen, name)
			continue
		}
		f, err := try(name, cfg)
		if err == nil {
			return f, nil
		}
		if cfg.Device != "" {
			return nil, err
		}
		var oe *OpenError
		if errors.As(err, &oe) {
			reason = oe.Err
		}
		if without == nil && errors.Is(err, ErrNoGID) {
			without = err
		}
		seen = append(seen, fmt.Sprintf("%s (%v)", name, err))
	}
	if without != nil {
		return nil, without
	}
	have := "this machine has none"
	if len(seen) > 0 {
		have = "this machine has " + strings.Join(seen, ", ")
	}
	want := "any device with an active port"
	if cfg.Device != "" {
		want = fmt.Sprintf("%q", cfg.Device)
	}
	return nil, &OpenError{Key: "device", Err: reason, Detail: fmt.Sprintf("looked for %s; %s", want, have)}
}

// try opens a device and looks for the port, 0: the first active one that has such a GID as is wanted.
func try(name string, cfg Config) (*found, error) {
	ctx, err := openContext(name)
	if err != nil {
		return nil, &OpenError{Key: "device", Err: err, Detail: "cannot be opened: see the permissions of /dev/infiniband"}
	}
	f, err := examine(ctx, name, cfg.Port, cfg.GIDIndex)
	if err != nil {
		return nil, errors.Join(err, closeContext(ctx))
	}
	return f, nil
}

func examine(ctx cContext, name string, port, gidIndex int) (*found, error) {
	f := &found{ctx: ctx, name: name}
	info, initReads, ports, err := queryDevice(ctx)
	if err != nil {
		return nil, err
	}
	f.info, f.initReads = info, initReads
	if port > ports {
		return nil, &OpenError{Key: "port", Err: ErrNoPort, Detail: fmt.Sprintf("%s has ports 1 to %d, not %d", name, ports, port)}
	}
	first, last := 1, ports
	if port > 0 {
		first, last = port, port
	}
	var states []string
	var without error // why the first active port does not do
	for n := first; n <= last; n++ {
		f.port, f.gidTable, f.pkeyTable, f.maxMsg, err = queryPort(ctx, n)
		if err != nil {
			return nil, err
		}
		if f.port.State != portActive {
			states = append(states, fmt.Sprintf("port %d is %s", n, f.port.State))
			continue
		}
		if f.port.GIDs, err = queryGIDs(ctx, n); err != nil {
			return nil, err
		}
		if f.gid, f.why, err = f.chooseGID(gidIndex); err == nil {
			return f, nil
		}
		if without == nil {
			without = err
		}
	}
	if without != nil {
		return nil, without
	}
	return nil, &OpenError{Key: "port", Err: ErrPortDown, Detail: fmt.Sprintf("%s: %s; is its network interface up?", name, strings.Join(states, ", "))}
}

// chooseGID returns the GID that the configuration names or leaves to be chosen.
func (f *found) chooseGID(index int) (GID, string, error) {
	if index >= f.gidTable {
		return GID{}, "", &OpenError{Key: "gid_index", Err: ErrNoGID,
			Detail: fmt.Sprintf("%s port %d has indexes 0 to %d, not %d", f.name, f.port.Number, f.gidTable-1, index)}
	}
	why := "the configuration says so"
	if index == AutoGID {
		if index, why = bestGID(f.port.LinkLayer, f.port.GIDs); index < 0 {
			return GID{}, "", &OpenError{Key: "gid_index", Err: ErrNoGID,
				Detail: fmt.Sprintf("%s port %d: %s; give its network interface an IP address", f.name, f.port.Number, why)}
		}
	}
	for _, g := range f.port.GIDs {
		if g.Index == index {
			return g, why, nil
		}
	}
	return GID{}, "", &OpenError{Key: "gid_index", Err: ErrNoGID,
		Detail: fmt.Sprintf("%s port %d: index %d is empty, %d others are not", f.name, f.port.Number, index, len(f.port.GIDs))}
}

// gidIndex returns where the port has a GID that it had before. An address that goes and comes back has another place while
// connections hold the old one.
func (f *found) gidIndex(had GID) (int, error) {
	if f.port.LinkLayer == linkInfiniBand {
		return had.Index, nil
	}
	gids, err := queryGIDs(f.ctx, f.port.Number)
	if err != nil {
		return 0, err
	}
	index, ok := findGID(gids, had)
	if !ok {
		return 0, &OpenError{Key: "gid_index", Err: ErrNoGID,
			Detail: fmt.Sprintf("%s port %d has lost its GID %s (%s), or has it beyond index %d: ip address add it to %s again, or have a new core use another (rdmad devices, rdmad upgrade)",
				f.name, f.port.Number, had.Addr, had.Type, MaxGIDIndex, cmp.Or(had.Netdev, "its network interface"))}
	}
	return index, nil
}

// portNow returns the LID that the port has now, 0 on Ethernet, and its active MTU: a subnet manager may give it another LID at any
// time, and on Ethernet the MTU follows that of the network interface.
func (f *found) portNow() (lid uint16, activeMTU int, err error) {
	p, _, _, _, err := queryPort(f.ctx, f.port.Number)
	if f.port.LinkLayer == linkInfiniBand {
		lid = uint16(p.LID)
	}
	return lid, p.ActiveMTU, err
}

// checkPKey makes sure that the partition key exists.
func (f *found) checkPKey(index int) error {
	fail := func(detail string) error {
		return &OpenError{Key: "pkey_index", Err: ErrNoPKey, Detail: fmt.Sprintf("%s port %d: %s", f.name, f.port.Number, detail)}
	}
	if index >= f.pkeyTable {
		return fail(fmt.Sprintf("indexes are 0 to %d, not %d", f.pkeyTable-1, index))
	}
	key, err := queryPKey(f.ctx, f.port.Number, index)
	if err != nil {
		return err
	}
	if key&0x7fff == 0 {
		return fail(fmt.Sprintf("index %d is empty", index))
	}
	return nil
}
