package fabrics

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/rdmasys"
)

// Fabric is an open device with how it came to be chosen.
type Fabric struct {
	Device fabric.Device
	// Name is the provider in use, Wanted the one that the config names.
	Name, Wanted string
	// Fallback says why tcp is used although something better was asked for;
	// empty otherwise.
	Fallback string
	// Detail is what the device says of itself, if it does.
	Detail string
	// Number is its place among those that the node has, and in agent.CQs.
	Number int
}

// VerbsPackage is what Opener needs of package verbs.
type VerbsPackage struct {
	Built   bool
	Devices func() ([]verbs.DeviceInfo, error)
	Open    func(verbs.Config) (fabric.Provider, error)
}

// Libibverbs is the package as it was built. Programs that are made for tests have another.
var Libibverbs = VerbsPackage{Built: verbs.Built, Devices: verbs.Devices, Open: verbs.New}

// Opener opens the devices that a config asks for.
type Opener struct {
	// Verbs is Libibverbs, or a test's.
	Verbs VerbsPackage
	// Again: the core goes on for one that has died, and so does without what others have taken meanwhile.
	Again bool

	cfg *config.Config
	log zerolog.Logger
	// security is for data connections of tcp; nil: none.
	security tcp.Security
	nodes    string // the directory of device nodes
}

// NewOpener returns an opener whose data connections over tcp have the given security, nil for none.
func NewOpener(cfg *config.Config, log zerolog.Logger, security tcp.Security) *Opener {
	return &Opener{cfg: cfg, log: log, security: security, nodes: deviceNodes, Verbs: Libibverbs}
}

// Open opens the devices, the best first: with the provider "auto" there is tcp behind
// verbs, for links that verbs does not carry. It runs in the core, which forks nothing
// afterwards. Only "auto" falls back to tcp, and never silently.
func (o *Opener) Open() ([]*Fabric, error) {
	f, err := o.openBest()
	if err != nil {
		return nil, err
	}
	if f.Wanted != "auto" || f.Name == tcp.Name {
		return []*Fabric{f}, nil
	}
	spare := &Fabric{Wanted: f.Wanted, Number: 1}
	if err := o.openTCP(spare); err != nil {
		event.FabricNoTCP.On(&o.log).Err(err).Msg("there is no tcp behind " + f.Name)
		return []*Fabric{f}, nil
	}
	return []*Fabric{f, spare}, nil
}

// openBest opens the best device.
func (o *Opener) openBest() (*Fabric, error) {
	f := &Fabric{Wanted: o.cfg.Fabric.Provider}
	var err error
	switch f.Wanted {
	case tcp.Name:
		err = o.openTCP(f)
	case verbs.Name:
		err = o.openVerbs(f)
	case libfabric.Name:
		err = o.openLibfabric(f)
	case "auto":
		if err = o.verbsUsable(); err == nil && o.Again && o.security != nil {
			// The core before had none, or it would not have begun: it has come since.
			err = fmt.Errorf("there is an RDMA device now, of which TLS cannot encrypt the data, but tls.data = %q", config.TLSDataTLS)
		}
		if err == nil {
			err = o.openVerbs(f)
		}
		if err != nil {
			f.Fallback = err.Error()
			event.FabricFallback.On(&o.log).Str("reason", f.Fallback).Msg("fabric.provider = \"auto\" falls back to tcp; for more see: rdmad doctor")
			err = o.openTCP(f)
		}
	default:
		err = fmt.Errorf("%w by this build", fabric.ErrNotSupported)
	}
	if err != nil {
		return nil, fmt.Errorf("fabric.provider = %q: %w", f.Wanted, err)
	}
	if o.security != nil && f.Name != tcp.Name {
		return nil, errors.Join(fmt.Errorf("fabric.provider = %q has chosen %s, of which TLS cannot encrypt the data, but tls.data = %q: "+
			"set fabric.provider = %q, or tls.data = \"plain\" and see docs/security.md", f.Wanted, f.Name, config.TLSDataTLS, tcp.Name), f.Device.Close())
	}
	if f.Name == verbs.Name {
		o.warnOfOpenNodes()
	}
	o.log.Info().Str("provider", f.Name).Str("wanted", f.Wanted).Str("device", f.Detail).Msg("fabric open")
	return f, nil
}

func (o *Opener) openTCP(f *Fabric) error {
	// A name is looked up once: it may stand for several addresses, and the one that peers are told must be listened at.
	listen := withAddress(o.cfg.Fabric.Listen)
	err := o.openWith(f, tcp.New(tcp.Config{Security: o.security, Congestion: o.cfg.Fabric.Congestion}), listen)
	if errors.Is(err, tcp.ErrCongestion) {
		return fmt.Errorf("fabric.congestion_control = %q: %w", o.cfg.Fabric.Congestion, err)
	}
	return err
}

func (o *Opener) openVerbs(f *Fabric) error {
	p, err := o.Verbs.Open(verbsConfig(o.cfg.Verbs))
	if err != nil {
		return err
	}
	return o.openWith(f, p, o.cfg.Fabric.Listen)
}

func (o *Opener) openLibfabric(f *Fabric) error {
	p, err := libfabric.New(libfabricConfig(o.cfg.Libfabric))
	if err != nil {
		return err
	}
	return o.openWith(f, p, o.cfg.Fabric.Listen)
}

// openWith opens a device of p, which listens at the given address if it listens at any.
func (o *Opener) openWith(f *Fabric, p fabric.Provider, listen string) error {
	advertise := o.cfg.Fabric.Advertise
	if advertise == "" {
		known := false
		if advertise, known = advertisedHost(o.cfg, listen); !known {
			o.log.Info().Str("advertise", advertise).Msg("no route to a peer was found to learn this node's address from; set fabric.advertise if peers cannot reach it at this one")
		}
	}
	dev, err := p.Open(fabric.Options{Listen: listen, Advertise: advertise})
	if host, _, split := net.SplitHostPort(listen); o.Again && split == nil && errors.Is(err, unix.EADDRINUSE) {
		// Somebody was quicker than this core. Peers learn the port from this node, and processes go on.
		event.FabricPortTaken.On(&o.log).Err(err).Msg("another process listens at fabric.listen: this core takes data connections at a port of the kernel's choice")
		dev, err = p.Open(fabric.Options{Listen: net.JoinHostPort(host, "0"), Advertise: advertise})
	}
	if err != nil {
		return err
	}
	f.Device, f.Name, f.Detail = dev, p.Name(), fabric.Describe(dev)
	if f.Detail == "" && f.Name == tcp.Name {
		f.Detail = "advertised as " + advertise
		if o.security != nil {
			f.Detail += ", data connections with TLS 1.3"
		}
	}
	return nil
}

// verbsUsable says why the provider verbs cannot work here, as far as that can be
// seen without opening anything.
func (o *Opener) verbsUsable() error {
	if !o.Verbs.Built {
		_, err := o.Verbs.Open(verbs.Default()) // whose error says how to get one
		return err
	}
	devices, err := o.Verbs.Devices()
	if errors.Is(err, syscall.ENOSYS) {
		// What libibverbs says where the kernel has no RDMA at all.
		return fmt.Errorf("%w, or its kernel module ib_uverbs is not loaded: %w", rdmasys.ErrNoDevice, err)
	}
	if err != nil {
		return err
	}
	_, _, err = rdmasys.Choose(devices, o.cfg.Verbs.Device, o.cfg.Verbs.Port, o.cfg.Verbs.GIDIndex)
	return err
}

// verbsConfig translates the section [verbs].
func verbsConfig(v config.Verbs) verbs.Config {
	return verbs.Config{
		Device: v.Device, Port: v.Port, GIDIndex: v.GIDIndex, Connect: v.Connect, MTU: v.MTU,
		Timeout: v.Timeout, RetryCount: v.RetryCount, RNRRetry: v.RNRRetry, MinRNRTimer: v.MinRNRTimer,
		MaxReadAtomic: v.MaxReadAtomic,
		ServiceLevel:  v.ServiceLevel, TrafficClass: v.TrafficClass, HopLimit: v.HopLimit, PKeyIndex: v.PKeyIndex,
		MaxInline: v.MaxInline, ConnectTimeout: v.ConnectTimeout,
	}
}

// libfabricConfig translates the section [libfabric].
func libfabricConfig(l config.Libfabric) libfabric.Config {
	return libfabric.Config{Provider: l.Provider, Domain: l.Domain, Source: l.Source}
}
