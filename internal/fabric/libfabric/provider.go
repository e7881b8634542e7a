//go:build libfabric && cgo && linux

package libfabric

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Built reports whether the provider is compiled in.
const Built = true

// New makes the provider. What the configuration names is looked for by Open.
func New(cfg Config) (fabric.Provider, error) {
	if cfg.Provider == "" || len(cfg.Provider) > maxProvider {
		return nil, &OpenError{Key: "provider", Err: ErrNoProvider, Detail: fmt.Sprintf("%q; %s", cfg.Provider, offered())}
	}
	return &provider{cfg: cfg}, nil
}

type provider struct{ cfg Config }

// Name implements fabric.Provider.
func (p *provider) Name() string { return Name }

// Open implements fabric.Provider. Providers with addresses of IP use Config.Source, or the
// address that o advertises, or that of o.Listen; the system chooses ports. Errors are
// *OpenError and *CallError. The caller must Close the *Device.
func (p *provider) Open(o fabric.Options) (fabric.Device, error) {
	raw, info, q, err := open(p.cfg, o)
	if err != nil {
		return nil, err
	}
	d, err := newDevice(p.cfg, raw, info, q)
	if err != nil {
		return nil, errors.Join(err, closeDevice(raw))
	}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// open finds what the configuration names, with as much of what rdmad can make use of as there is.
func open(cfg Config, o fabric.Options) (d cDevice, info rawInfo, q query, err error) {
	all, err := listInfo(query{provider: cfg.Provider})
	if err != nil {
		return nil, info, q, err
	}
	// The library also finds what only contains the name.
	all = slices.DeleteFunc(all, func(i rawInfo) bool { return i.Provider != cfg.Provider })
	if len(all) == 0 {
		return nil, info, q, &OpenError{Key: "provider", Err: ErrNoProvider, Detail: fmt.Sprintf("%q; %s", cfg.Provider, offered())}
	}
	q = query{provider: cfg.Provider, domain: cfg.Domain, need: true, delivery: true, atomics: true}
	if cfg.Domain != "" && !slices.ContainsFunc(all, func(i rawInfo) bool { return i.Domain == cfg.Domain }) {
		return nil, info, q, &OpenError{Key: "domain", Err: ErrNoDomain, Detail: fmt.Sprintf("%q; %s has %s", cfg.Domain, cfg.Provider, domains(all))}
	}
	if slices.ContainsFunc(all, func(i rawInfo) bool { return i.ip && i.unfit() == "" }) {
		q.node = source(cfg, o)
		// A device is hardly ever reached by the address of the loopback interface, which is what
		// nodes of one machine advertise.
		ip := net.ParseIP(q.node)
		if ip != nil && ip.IsLoopback() && cfg.Source == "" && !slices.ContainsFunc(all, func(i rawInfo) bool { return i.Address == q.node }) {
			q.node = ""
		}
	}
	var first error
	for _, less := range []func(){func() {}, func() { q.atomics = false }, func() { q.delivery = false }} {
		less()
		d, info, err = openDevice(q)
		if err == nil && info.Provider == cfg.Provider {
			return d, info, q, nil
		}
		if err == nil { // a layer over it that can do more
			if err = closeDevice(d); err != nil {
				return nil, info, q, err
			}
			err = callError("fi_getinfo", errNoData)
		}
		var ce *CallError
		if !errors.As(err, &ce) || ce.Code != errNoData {
			return nil, info, q, err
		}
		if first == nil {
			first = err
		}
	}
	return nil, info, q, whyNot(cfg, q, all, first)
}

// source is the address to use.
func source(cfg Config, o fabric.Options) string {
	if cfg.Source != "" {
		return cfg.Source
	}
	if o.Advertise != "" {
		return o.Advertise
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if ip := net.ParseIP(host); err != nil || ip != nil && ip.IsUnspecified() {
		return ""
	}
	return host
}

// whyNot explains that the library finds nothing that will do.
func whyNot(cfg Config, q query, all []rawInfo, err error) error {
	var reasons []string
	for _, i := range all {
		why := i.unfit()
		if why == "" {
			key, sentence := "source", fmt.Sprintf("%q", q.node)
			if q.node == "" {
				key, sentence = "domain", fmt.Sprintf("%q", cfg.Domain)
			}
			return &OpenError{Key: key, Err: ErrSource, Detail: fmt.Sprintf("%s; %s has %s", sentence, cfg.Provider, addresses(all))}
		}
		if !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return &OpenError{Key: "provider", Err: errors.Join(ErrCapability, err), Detail: cfg.Provider + ": " + strings.Join(reasons, "; ")}
}

// verbsProvider is refused, because it cannot be made safe from here: rxm closes what a message came
// through before it looks at the message, gives the buffer back to what is closed, and takes the
// process with it. The peer decides when that happens. docs/fabrics.md has the details.
const verbsProvider = "verbs;ofi_rxm"

// unfit says why rdmad cannot use an entry, or nothing.
func (i *rawInfo) unfit() string {
	if i.Endpoint != "RDM" {
		return "its endpoints are of the type " + i.Endpoint + ", not RDM"
	}
	var missing []string
	for _, n := range needed {
		if i.caps&n.bit == 0 {
			missing = append(missing, n.name)
		}
	}
	if i.Limits.Data < 4 {
		missing = append(missing, "4 bytes of data with a write (FI_REMOTE_CQ_DATA)")
	}
	if i.order&bitOrder == 0 {
		missing = append(missing, "messages in order (FI_ORDER_SAS)")
	}
	if len(missing) > 0 {
		return "it lacks " + strings.Join(missing, ", ")
	}
	if i.Provider == verbsProvider {
		return "it crashes when a peer sends something and closes the connection; use fabric verbs"
	}
	return ""
}

// offered lists the providers that can be used here.
func offered() string {
	all, err := Devices()
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, d := range all {
		if d.Usable && !slices.Contains(names, d.Provider) {
			names = append(names, d.Provider)
		}
	}
	if len(names) == 0 {
		return "libfabric has none here that can be used: see rdmad devices"
	}
	return "there are " + strings.Join(names, ", ")
}

// list joins what is not empty, once each.
func list(all []rawInfo, of func(rawInfo) string) string {
	var names []string
	for _, i := range all {
		if n := of(i); n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

func domains(all []rawInfo) string { return list(all, func(i rawInfo) string { return i.Domain }) }

// ownAddresses lists the addresses that a provider can use.
func ownAddresses(provider string) string {
	all, err := listInfo(query{provider: provider})
	if err != nil {
		return err.Error()
	}
	return provider + " has " + addresses(all)
}

func addresses(all []rawInfo) string {
	return list(all, func(i rawInfo) string {
		if i.Address == "" {
			return ""
		}
		return i.Address + " (" + i.Domain + ")"
	})
}

// Devices describes what libfabric offers on this machine, and says what of it can be used.
// Entries that differ in nothing that matters are left out.
func Devices() ([]DeviceInfo, error) {
	all, err := listInfo(query{})
	if err != nil {
		return nil, err
	}
	var devices []DeviceInfo
	for _, i := range all {
		i.Why = i.unfit()
		i.Usable = i.Why == ""
		same := func(d DeviceInfo) bool {
			return d.Provider == i.Provider && d.Domain == i.Domain && d.Address == i.Address && d.Endpoint == i.Endpoint && d.Format == i.Format
		}
		if at := slices.IndexFunc(devices, same); at < 0 {
			devices = append(devices, i.DeviceInfo)
		} else if i.Usable && !devices[at].Usable {
			devices[at] = i.DeviceInfo
		}
	}
	return devices, nil
}
