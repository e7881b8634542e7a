//go:build libfabric && cgo && linux

package libfabric

import (
	"slices"
	"strings"
)

// Devices describes what libfabric offers on this machine, and says what of it can be used, which it opens
// to find out. Entries that differ in nothing that matters are left out.
func Devices() ([]DeviceInfo, error) {
	devices, err := listed()
	if err != nil {
		return nil, err
	}
	found := map[query]DeviceInfo{}
	for i := range devices {
		d := &devices[i]
		if !d.Usable {
			continue
		}
		q := query{provider: d.Provider, domain: d.Domain, need: true, delivery: true, atomics: true, notices: asMessages(d.Provider)}
		f, ok := found[q]
		if !ok {
			f = probe(q)
			found[q] = f
		}
		d.Usable, d.Why, d.Delivery, d.Descriptors, d.Atomics, d.Notices = f.Usable, f.Why, f.Delivery, f.Descriptors, f.Atomics, f.Notices
	}
	return devices, nil
}

// probe opens what a query finds, and tells what it can do.
func probe(q query) DeviceInfo {
	raw, info, q, err := openMost(q)
	if err != nil {
		return DeviceInfo{Why: "it cannot be opened: " + err.Error()}
	}
	f := DeviceInfo{Why: info.asksTooMuch(), Delivery: q.delivery, Descriptors: waits(raw), Atomics: atomics(raw), Notices: q.notices}
	if err := closeDevice(raw); err != nil {
		f.Why = "it cannot be closed: " + err.Error()
	}
	f.Usable = f.Why == ""
	return f
}

// listed is Devices as far as the library tells without opening anything.
func listed() ([]DeviceInfo, error) {
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

// broken are providers that are refused, because they cannot be made safe from here. docs/fabrics.md has the
// details.
var broken = map[string]string{
	"udp;ofi_rxd": "it loses completions, says nothing of messages that were cut, and crashes in atomics; use tcp;ofi_rxm",
}

const verbsProvider = "verbs;ofi_rxm"

// asMessages reports whether immediates go as messages over a provider, because it loses data that comes with writes:
// verbs;ofi_rxm takes every completion of a receive that queue pairs share for a message. Without such receives rxm
// closes what a message came through before it looks at the message, gives the buffer back to what is closed, and
// takes the process with it, at a time that the peer chooses.
func asMessages(provider string) bool { return provider == verbsProvider }

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
	if asMessages(i.Provider) && i.order&bitFollows == 0 {
		missing = append(missing, "messages that stay behind writes (FI_ORDER_SAW)")
	}
	if len(missing) > 0 {
		return "it lacks " + strings.Join(missing, ", ")
	}
	if i.Provider == verbsProvider {
		return verbsUnfit(sharesReceives(), cachesRegions())
	}
	return broken[i.Provider]
}

// verbsUnfit says what keeps verbs;ofi_rxm from being safe in this process, or nothing.
func verbsUnfit(shares, caches bool) string {
	switch {
	case !shares:
		return "FI_OFI_RXM_USE_SRX is off in the environment: without shared receives it crashes when a peer sends something and closes"
	case caches:
		return "FI_MR_CACHE_MAX_COUNT was not 0 when this process first used libfabric: with that cache it leaves closed memory to peers"
	}
	return ""
}

// asksTooMuch says what an entry asks of its user that rdmad does not do, or nothing. It is only true of
// an entry that was found with what is needed: others also have what a provider would like.
func (i *rawInfo) asksTooMuch() string {
	switch {
	case i.mode&^modesOK != 0:
		return "it asks for the modes " + strings.Join(i.Modes, ", ")
	case i.mrMode&^mrModesOK != 0:
		return "it asks for memory " + strings.Join(i.MRModes, ", ")
	}
	return ""
}

// offered lists the providers that can be used here.
func offered() string {
	all, err := listed()
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
