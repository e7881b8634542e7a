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
		"endpoint type":    {Config{Provider: "tcp"}, "provider", ErrCapability, "MSG, not RDM"},
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

// A provider that a peer can crash the process with is not used, and is listed with the reason.
func TestVerbsIsRefused(t *testing.T) {
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	verbs := func(d DeviceInfo) bool { return d.Provider == verbsProvider && d.Endpoint == "RDM" }
	at := slices.IndexFunc(all, verbs)
	if at < 0 {
		t.Skip("libfabric finds no RDMA device here; the lab has one: make lab")
	}
	if d := all[at]; d.Usable || !strings.Contains(d.Why, "fabric verbs") {
		t.Errorf("%+v", d)
	}
	d, err := newProvider(t, Config{Provider: verbsProvider}).Open(fabric.Options{})
	if err == nil {
		_ = d.Close()
		t.Fatal("opened")
	}
	var oe *OpenError
	if !errors.As(err, &oe) || oe.Key != "provider" || !errors.Is(err, ErrCapability) || !strings.Contains(err.Error(), "fabric verbs") {
		t.Error(err)
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

// What is said of a device is what libfabric says of it.
func TestDevices(t *testing.T) {
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	eachProvider(t, func(t *testing.T, cfg Config) {
		d := opened(t, cfg)
		c := d.Caps()
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
			if i.Endpoint == "" || i.Format == "" || i.Limits.Data < 4 && i.Usable || i.Usable != (i.Why == "") || len(i.Caps) == 0 {
				t.Errorf("%+v", i)
			}
		}
		if found == 0 {
			t.Error("it is not among what there is")
		}
	})
}

// Ends of different providers say so.
func TestOtherProvider(t *testing.T) {
	var ends [2]fabric.Endpoint
	for i, name := range []string{"tcp;ofi_rxm", "shm"} {
		d := opened(t, Config{Provider: name})
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
		if ends[i], err = pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 4, RecvDepth: 4}); err != nil {
			t.Fatal(err)
		}
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
