package perfrun

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/perf"
)

// Fabrics are the values of Fabric.Name.
var Fabrics = []string{tcp.Name, verbs.Name, libfabric.Name}

// Fabric is what moves the data, as the flags have it.
type Fabric struct {
	// Name is one of Fabrics.
	Name string
	// Provider is libfabric's name of one.
	Provider string
	// Device is the RDMA device, or libfabric's domain; empty: the first that will do.
	Device string
	// Port and GIDIndex are the device's port, 0: the first that is active, and the
	// index of its GID, -1: the best.
	Port, GIDIndex int
	// MTU is the path MTU of RDMA, 0: the port's.
	MTU int
	// CM: connect by the connection manager.
	CM bool
	// Source is the address that this side's device has, or is reached by; empty: the one
	// that the other side has reached it by, or it the other side.
	Source string
}

// Flags returns the flags that ask for the same.
func (f Fabric) Flags() []string {
	flags := []string{"--fabric", f.Name, "--gid-index", strconv.Itoa(f.GIDIndex), "--ib-port", strconv.Itoa(f.Port), "--mtu", strconv.Itoa(f.MTU)}
	for name, value := range map[string]string{"--provider": f.Provider, "--device": f.Device, "--source": f.Source} {
		if value != "" {
			flags = append(flags, name, value)
		}
	}
	if f.CM {
		flags = append(flags, "--rdma-cm")
	}
	return flags
}

// source returns what devices are opened from. Errors are *perf.InputError.
func (f Fabric) source(version string) (perf.Source, error) {
	s := perf.Source{Name: f.Name, Version: version, Host: f.Source}
	if err := f.check(); err != nil {
		return s, err
	}
	var err error
	switch f.Name {
	case tcp.Name:
		s.Provider = tcp.New(tcp.Config{})
	case verbs.Name:
		c := verbs.Default()
		c.Device, c.Port, c.GIDIndex, c.MTU = f.Device, f.Port, f.GIDIndex, f.MTU
		if f.CM {
			c.Connect = verbs.ConnectCM
		}
		s.NoHost = f.Source == ""
		s.Provider, err = verbs.New(c)
	case libfabric.Name:
		c := libfabric.Default()
		if f.Provider != "" {
			c.Provider = f.Provider
		}
		c.Domain, c.Source = f.Device, f.Source
		s.Name += " " + c.Provider
		s.Provider, err = libfabric.New(c)
	}
	if err != nil {
		return s, perf.Inputf("--fabric %s: %w", f.Name, err)
	}
	return s, nil
}

// check refuses values that nothing could be made of, and flags that the fabric has no use for.
func (f Fabric) check() error {
	if f.Source != "" && net.ParseIP(f.Source) == nil {
		return perf.Inputf("--source %q: want an IP address of this machine", f.Source)
	}
	useless := func(flag string, given bool) error {
		if given {
			return perf.Inputf("%s: --fabric %s has no use for it", flag, f.Name)
		}
		return nil
	}
	switch f.Name {
	case tcp.Name:
		return errors.Join(useless("--provider", f.Provider != ""), useless("--device", f.Device != ""), f.noRDMA(useless))
	case libfabric.Name:
		return f.noRDMA(useless)
	case verbs.Name:
		return useless("--provider", f.Provider != "")
	}
	return perf.Inputf("--fabric %q: want one of tcp, verbs, libfabric", f.Name)
}

func (f Fabric) noRDMA(useless func(string, bool) error) error {
	return errors.Join(useless("--ib-port", f.Port != 0), useless("--gid-index", f.GIDIndex != verbs.AutoGID),
		useless("--mtu", f.MTU != 0), useless("--rdma-cm", f.CM))
}

// withDevices says where to look for devices, unless the error has done so.
func withDevices(err error) error {
	const command = "rdmad devices"
	if strings.Contains(err.Error(), command) {
		return err
	}
	return fmt.Errorf("%w (see: %s)", err, command)
}

// open opens a device, and calls it bad input if what the flags name is not there.
func open(s perf.Source, host string) (*perf.Node, error) {
	n, err := s.Open(host)
	var missing *verbs.OpenError
	var nothing *libfabric.OpenError
	var refused *verbs.ConfigError
	if errors.As(err, &missing) || errors.As(err, &nothing) || errors.As(err, &refused) || errors.Is(err, fabric.ErrNotSupported) {
		return nil, perf.Inputf("%w", withDevices(err))
	}
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil, perf.Inputf("%w: want an IP address of this machine (--source)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("perf: %w", err)
	}
	return n, nil
}
