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

type provider struct {
	cfg     Config
	demands *demands // nil but in tests
}

// Name implements fabric.Provider.
func (p *provider) Name() string { return Name }

// Open implements fabric.Provider. Providers with addresses of IP use Config.Source, or the
// address that o advertises, or that of o.Listen; the system chooses ports. Errors are
// *OpenError and *CallError. The caller must Close the *Device.
func (p *provider) Open(o fabric.Options) (fabric.Device, error) {
	raw, info, q, err := open(p.cfg, o, asMessages(p.cfg.Provider) || p.demands != nil && p.demands.notices)
	if err != nil {
		return nil, err
	}
	if p.demands != nil {
		impose(raw, &info, *p.demands)
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

// open finds what the configuration names, with as much of what rdmad can make use of as there is, and where
// immediates go as messages if notices is set.
func open(cfg Config, o fabric.Options, notices bool) (d cDevice, info rawInfo, q query, err error) {
	all, err := listInfo(query{provider: cfg.Provider})
	if err != nil {
		return nil, info, q, err
	}
	// The library also finds what only contains the name.
	all = slices.DeleteFunc(all, func(i rawInfo) bool { return i.Provider != cfg.Provider })
	if len(all) == 0 {
		return nil, info, q, &OpenError{Key: "provider", Err: ErrNoProvider, Detail: fmt.Sprintf("%q; %s", cfg.Provider, offered())}
	}
	q = query{provider: cfg.Provider, domain: cfg.Domain, need: true, delivery: true, atomics: true, notices: notices}
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
	d, info, q, err = openMost(q)
	if nothing(err) {
		err = whyNot(cfg, q, all, err)
	}
	return d, info, q, err
}

// openMost opens what the query finds, and does without atomics, and then without word of what has
// landed, if there is nothing else. It returns the query that has found something.
func openMost(q query) (d cDevice, info rawInfo, found query, err error) {
	for _, less := range []func(){func() {}, func() { q.atomics = false }, func() { q.delivery = false }} {
		less()
		d, info, err = openDevice(q)
		if err == nil && info.Provider == q.provider {
			return d, info, q, nil
		}
		if err == nil { // a layer over it that can do more
			if err = closeDevice(d); err != nil {
				return nil, info, q, err
			}
			err = callError("fi_getinfo", errNoData)
		}
		if !nothing(err) {
			return nil, info, q, err
		}
	}
	return nil, info, q, err
}

// nothing reports whether err is the library's word for having found nothing.
func nothing(err error) bool {
	var ce *CallError
	return errors.As(err, &ce) && ce.Code == errNoData
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
