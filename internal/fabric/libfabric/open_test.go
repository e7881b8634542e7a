//go:build libfabric && cgo && linux

package libfabric

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// What the configuration names and libfabric does not have is refused by the key, with what
// there is.
func TestOpenRefuses(t *testing.T) {
	before := live.Load()
	for name, c := range map[string]struct {
		cfg  Config
		key  string
		is   error
		says string
	}{
		"provider":         {Config{Provider: "nothere"}, "provider", ErrNoProvider, "tcp;ofi_rxm"},
		"part of a name":   {Config{Provider: "ofi_rxm"}, "provider", ErrNoProvider, "shm"},
		"endpoint type":    {Config{Provider: "udp"}, "provider", ErrCapability, "DGRAM, not RDM"},
		"domain":           {Config{Provider: "tcp;ofi_rxm", Domain: "nothere0"}, "domain", ErrNoDomain, "lo"},
		"address":          {Config{Provider: "tcp;ofi_rxm", Source: "198.51.100.7"}, "source", ErrSource, "127.0.0.1 (lo)"},
		"address of other": {Config{Provider: "tcp;ofi_rxm", Domain: "lo", Source: "198.51.100.7"}, "source", ErrSource, "lo"},
	} {
		d, err := newProvider(t, c.cfg).Open(fabric.Options{})
		if err == nil {
			t.Errorf("%s: opened", name)
			_ = d.Close()
			continue
		}
		var oe *OpenError
		if !errors.As(err, &oe) || oe.Key != c.key || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("x", maxProvider+1)} {
		if _, err := New(Config{Provider: name}); !errors.Is(err, ErrNoProvider) {
			t.Errorf("provider %q: %v", name, err)
		}
	}
	if n := live.Load() - before; n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

// A name is looked up, whichever key has it: the endpoint's address is that of this node, and no peer needs to know the name.
func TestOpenByName(t *testing.T) {
	for what, c := range map[string]struct {
		source string
		o      fabric.Options
	}{
		"source":    {"localhost", fabric.Options{}},
		"advertise": {"", fabric.Options{Listen: "0.0.0.0:0", Advertise: "localhost"}},
	} {
		d, err := newProvider(t, Config{Provider: rxmProvider, Source: c.source}).Open(c.o)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if at := d.(*Device).info.Address; !strings.HasPrefix(at, "127.0.0.1") {
			t.Errorf("%s: the address is %s", what, at)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A provider that crashes by itself is not used, and is listed with the reason.
func TestRxdIsRefused(t *testing.T) {
	refused(t, "udp;ofi_rxd", "tcp;ofi_rxm", "libfabric was built without it; Debian's libfabric1 has it")
}

// refused sees that a provider is not used, and says what to use instead.
func refused(t *testing.T, name, instead, missing string) {
	t.Helper()
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(d DeviceInfo) bool { return d.Provider == name && d.Endpoint == "RDM" })
	if at < 0 {
		t.Skip(missing)
	}
	if d := all[at]; d.Usable || !strings.Contains(d.Why, instead) {
		t.Errorf("%+v", d)
	}
	d, err := newProvider(t, Config{Provider: name}).Open(fabric.Options{})
	if err == nil {
		_ = d.Close()
		t.Fatal("opened")
	}
	var oe *OpenError
	if !errors.As(err, &oe) || oe.Key != "provider" || !errors.Is(err, ErrCapability) || !strings.Contains(err.Error(), instead) {
		t.Error(err)
	}
}

// Demands that rdmad does not meet are told by name, and those that it meets are none.
func TestAsksTooMuch(t *testing.T) {
	for _, c := range []struct {
		i    rawInfo
		says string
	}{
		{rawInfo{mode: modesOK, mrMode: mrModesOK}, ""},
		{rawInfo{mode: 1 << 50, DeviceInfo: DeviceInfo{Modes: []string{"RX_CQ_DATA"}}}, "RX_CQ_DATA"},
		{rawInfo{mrMode: 1 << 30, DeviceInfo: DeviceInfo{MRModes: []string{"ENDPOINT"}}}, "ENDPOINT"},
	} {
		if why := c.i.asksTooMuch(); (why == "") != (c.says == "") || !strings.Contains(why, c.says) {
			t.Errorf("%+v: %q", c.i, why)
		}
	}
}

func opened(t *testing.T, cfg Config) *Device {
	t.Helper()
	d, err := newProvider(t, cfg).Open(fabric.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d.(*Device)
}

// knownCaps is what is known of providers, without which much of the suite would be skipped.
var knownCaps = map[string]struct{ waits, atomics, delivery bool }{
	"tcp;ofi_rxm": {waits: true, atomics: true, delivery: true},
	"shm":         {atomics: true, delivery: true},
	// Its delivery is the acknowledgement of the peer's device, which has written by then.
	verbsProvider: {waits: true, delivery: true},
}

// What is said of a device is what libfabric says of it, and what is found when it is opened.
func TestDevices(t *testing.T) {
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	eachProvider(t, func(t *testing.T, cfg Config) {
		d := opened(t, cfg)
		c := d.Caps()
		if want, ok := knownCaps[cfg.Provider]; ok && (d.waits != want.waits || c.Atomics != want.atomics || d.delivery != want.delivery) {
			t.Errorf("descriptors %v, atomics %v, delivery %v, want %+v", d.waits, c.Atomics, d.delivery, want)
		}
		if c.OrderedWrites || c.MaxInline == 0 || !strings.Contains(d.Describe(), cfg.Provider) {
			t.Errorf("%+v, %s", c, d.Describe())
		}
		t.Log(d.Describe())
		found := 0
		for _, i := range all {
			if i.Provider != cfg.Provider {
				continue
			}
			found++
			if i.Usable && (i.Delivery != d.delivery || i.Descriptors != d.waits || i.Atomics != c.Atomics) {
				t.Errorf("%+v is not what was opened: %s, %+v", i, d.Describe(), c)
			}
			if i.Endpoint == "" || i.Format == "" || i.Limits.Data < 4 && i.Usable || i.Usable != (i.Why == "") || len(i.Caps) == 0 {
				t.Errorf("%+v", i)
			}
		}
		if found == 0 {
			t.Error("it is not among what there is")
		}
	})
}

// endOf makes an endpoint of a device, and closes both after the test.
func endOf(t *testing.T, d fabric.Device) fabric.Endpoint {
	t.Helper()
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pd.Close() })
	q, err := d.CreateCQ(16, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	e, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 4, RecvDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Ends of different providers say so.
func TestOtherProvider(t *testing.T) {
	var ends [2]fabric.Endpoint
	for i, name := range []string{"tcp;ofi_rxm", "shm"} {
		d, err := newProvider(t, Config{Provider: name}).Open(fabric.Options{Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = endOf(t, d)
	}
	for i, e := range ends {
		var ce *fabric.ConnectError
		var pe *PeerError
		err := e.Connect(context.Background(), ends[1-i].Address(), fabric.Active)
		if !errors.As(err, &ce) || !errors.As(err, &pe) || pe.What != "provider" {
			t.Error(err)
		}
	}
}

// Providers take signals for themselves; the program gets them still.
func TestSignalsAreKept(t *testing.T) {
	if _, err := Devices(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		got := make(chan os.Signal, 1)
		signal.Notify(got, s)
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		select {
		case <-got:
		case <-time.After(2 * time.Minute):
			t.Errorf("%v did not come", s)
		}
		signal.Stop(got)
	}
}
