package fabrics

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/fabric/libfabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
	"github.com/rdmad/rdmad/internal/peerauth"
)

// The defaults of [verbs] are those of the provider.
func TestLibfabricDefaults(t *testing.T) {
	if got, want := libfabricConfig(config.Default().Libfabric), libfabric.Default(); got != want {
		t.Errorf("the configuration's defaults make %+v, the provider's are %+v", got, want)
	}
	in := config.Libfabric{Provider: "p", Domain: "d", Source: "s"}
	if got := libfabricConfig(in); got != (libfabric.Config{Provider: "p", Domain: "d", Source: "s"}) {
		t.Errorf("%+v became %+v", in, got)
	}
}

func TestVerbsDefaults(t *testing.T) {
	if got, want := verbsConfig(config.Default().Verbs), verbs.Default(); got != want {
		t.Errorf("config has\n%+v, the provider\n%+v", got, want)
	}
}

// Every key of [verbs] reaches the field of the same name.
func TestVerbsConfig(t *testing.T) {
	var in config.Verbs
	v := reflect.ValueOf(&in).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(v.Type().Field(i).Name)
		default:
			f.SetInt(int64(i + 1))
		}
	}
	out := reflect.ValueOf(verbsConfig(in))
	if out.NumField() != v.NumField() {
		t.Errorf("the provider has %d fields, the config %d", out.NumField(), v.NumField())
	}
	for i := range out.NumField() {
		name := out.Type().Field(i).Name
		from := v.FieldByName(name)
		if !from.IsValid() || !reflect.DeepEqual(from.Interface(), out.Field(i).Interface()) {
			t.Errorf("%s: %v", name, out.Field(i))
		}
	}
}

// fakeVerbs is a provider whose device says what it is.
type fakeVerbs struct {
	*fabrictest.Fake
	err error
}

func (fakeVerbs) Name() string { return verbs.Name }

func (f fakeVerbs) Open(o fabric.Options) (fabric.Device, error) {
	if f.err != nil {
		return nil, f.err
	}
	dev, err := f.Fake.Open(o)
	return describedDevice{dev}, err
}

type describedDevice struct{ fabric.Device }

func (describedDevice) Describe() string { return "mlx5_0 port 1" }

// Which provider is opened, and what is said about it.
func TestOpenFabric(t *testing.T) {
	gids := []verbs.GID{{Addr: netip.MustParseAddr("fe80::1"), Type: "RoCE v2"}}
	up := []verbs.DeviceInfo{{Name: "mlx5_0", Ports: []verbs.PortInfo{{Number: 1, State: "ACTIVE", GIDs: gids}}}}
	down := []verbs.DeviceInfo{{Name: "mlx5_0", Ports: []verbs.PortInfo{{Number: 1, State: "DOWN"}}}}
	broken := errors.New("the device is broken")
	for _, c := range []struct {
		name, provider string
		built          bool
		devices        []verbs.DeviceInfo
		listErr        error
		openErr        error
		secured, again bool
		congestion     string
		use            string // empty: an error
		says           []string
	}{
		{name: "tcp", provider: "tcp", use: "tcp"},
		{name: "tcp without pacing", provider: "tcp", congestion: "reno", use: "tcp"},
		{name: "tcp with what there is not", provider: "tcp", congestion: "no-such", says: []string{`fabric.congestion_control = "no-such"`, "reno"}},
		{name: "tcp with TLS", provider: "tcp", secured: true, use: "tcp", says: []string{"data connections with TLS 1.3"}},
		{name: "auto with TLS", provider: "auto", built: true, secured: true, use: "tcp", says: []string{"no RDMA device", "data connections with TLS 1.3"}},
		{name: "auto with a device and TLS", provider: "auto", built: true, devices: up, secured: true, says: []string{"has chosen verbs", `tls.data = "tls"`, `set fabric.provider = "tcp"`}},
		{name: "auto with TLS, and a device since the last core", provider: "auto", built: true, devices: up, secured: true, again: true, use: "tcp", says: []string{"RDMA device now", `tls.data = "tls"`}},
		{name: "auto in another core", provider: "auto", built: true, devices: up, again: true, use: "verbs", says: []string{"mlx5_0 port 1"}},
		{name: "tcp needs nothing", provider: "tcp", built: true, listErr: broken, use: "tcp"},
		{name: "verbs", provider: "verbs", built: true, devices: up, use: "verbs", says: []string{"mlx5_0 port 1"}},
		{name: "verbs broken", provider: "verbs", built: true, devices: up, openErr: broken, says: []string{`fabric.provider = "verbs"`, "is broken"}},
		{name: "verbs not built", provider: "verbs", says: []string{`fabric.provider = "verbs"`, "-tags verbs", "libibverbs-dev", "librdmacm-dev"}},
		{name: "libfabric", provider: "libfabric", says: []string{`fabric.provider = "libfabric"`, "not supported"}},
		{name: "auto", provider: "auto", built: true, devices: up, use: "verbs", says: []string{"mlx5_0 port 1"}},
		{name: "auto not built", provider: "auto", use: "tcp", says: []string{"-tags verbs", "rdmad doctor"}},
		{name: "auto without device", provider: "auto", built: true, use: "tcp", says: []string{"no RDMA device", "rdmad doctor"}},
		{name: "auto with port down", provider: "auto", built: true, devices: down, use: "tcp", says: []string{"port 1 of mlx5_0 is DOWN"}},
		{name: "auto with no list", provider: "auto", built: true, listErr: broken, use: "tcp", says: []string{"is broken"}},
		{name: "auto without RDMA in the kernel", provider: "auto", built: true, listErr: syscall.ENOSYS, use: "tcp", says: []string{"no RDMA device", "ib_uverbs"}},
		{name: "auto broken", provider: "auto", built: true, devices: up, openErr: broken, use: "tcp", says: []string{"is broken"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config.Default()
			cfg.Fabric.Provider, cfg.Fabric.Listen = c.provider, "127.0.0.1:0"
			if c.congestion != "" {
				cfg.Fabric.Congestion = c.congestion
			}
			var log bytes.Buffer
			var security tcp.Security
			if c.secured {
				security = new(peerauth.Guard).Data(nil)
			}
			o := NewOpener(cfg, zerolog.New(&log), security)
			o.nodes, o.Again = t.TempDir(), c.again
			o.Verbs.Built = c.built
			o.Verbs.Devices = func() ([]verbs.DeviceInfo, error) { return c.devices, c.listErr }
			if c.built {
				o.Verbs.Open = func(verbs.Config) (fabric.Provider, error) {
					return fakeVerbs{fabrictest.NewFake(), c.openErr}, nil
				}
			} else if verbs.Built {
				t.Skip("this build has the provider; this is about builds without it: go test without -tags verbs")
			}
			list, err := o.Open()
			if err != nil {
				if c.use != "" || list != nil {
					t.Fatal(err, list)
				}
				log.WriteString(err.Error())
			} else {
				for k, f := range list {
					defer f.Device.Close()
					if f.Number != k {
						t.Errorf("fabric %d has number %d", k, f.Number)
					}
				}
				if spare := c.provider == "auto" && c.use != "tcp"; len(list) != 1 && !spare || spare && (len(list) != 2 || list[1].Name != "tcp") {
					t.Errorf("%d fabrics", len(list))
				}
				f := list[0]
				fellBack := c.provider == "auto" && c.use == "tcp"
				if f.Name != c.use || f.Wanted != c.provider || (f.Fallback != "") != fellBack {
					t.Errorf("%+v", f)
				}
				warnings := strings.Count(log.String(), `"level":"warn"`)
				if fellBack && warnings != 1 || !fellBack && warnings != 0 {
					t.Errorf("%d warnings:\n%s", warnings, log.String())
				}
			}
			text := strings.ReplaceAll(log.String(), `\"`, `"`)
			for _, s := range c.says {
				if !strings.Contains(text, s) {
					t.Errorf("no %q in:\n%s", s, text)
				}
			}
		})
	}
}

// A device that every local user can open is warned of when it is used, and only then.
func TestOpenDeviceNodes(t *testing.T) {
	up := []verbs.DeviceInfo{{Name: "mlx5_0", Ports: []verbs.PortInfo{{Number: 1, State: "ACTIVE", GIDs: []verbs.GID{{Addr: netip.MustParseAddr("fe80::1"), Type: "RoCE v2"}}}}}}
	for _, c := range []struct {
		provider string
		modes    map[string]os.FileMode
		warned   string // empty: not
	}{
		{verbs.Name, map[string]os.FileMode{"uverbs0": 0o660, "rdma_cm": 0o660}, ""},
		{verbs.Name, map[string]os.FileMode{"uverbs0": 0o660, "uverbs1": 0o666}, "uverbs1"},
		{verbs.Name, map[string]os.FileMode{"uverbs0": 0o600, "rdma_cm": 0o666}, "rdma_cm"},
		{"auto", map[string]os.FileMode{"uverbs0": 0o666}, "uverbs0"},
		{tcp.Name, map[string]os.FileMode{"uverbs0": 0o666}, ""},
		{verbs.Name, nil, ""},
	} {
		cfg := config.Default()
		cfg.Fabric.Provider, cfg.Fabric.Listen = c.provider, "127.0.0.1:0"
		var log bytes.Buffer
		o := NewOpener(cfg, zerolog.New(&log), nil)
		o.nodes = t.TempDir()
		for name, mode := range c.modes {
			path := filepath.Join(o.nodes, name)
			if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
				t.Fatal(err)
			}
		}
		o.Verbs.Built = true
		o.Verbs.Devices = func() ([]verbs.DeviceInfo, error) { return up, nil }
		o.Verbs.Open = func(verbs.Config) (fabric.Provider, error) { return fakeVerbs{fabrictest.NewFake(), nil}, nil }
		fs, err := o.Open()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fs {
			if err := f.Device.Close(); err != nil {
				t.Error(err)
			}
		}
		if warned := strings.Contains(log.String(), "every local user"); warned != (c.warned != "") || !strings.Contains(log.String(), c.warned) {
			t.Errorf("%s with %v: %s", c.provider, c.modes, log.String())
		}
	}
}

// A core that goes on for one that has died does so where somebody has taken the port of fabric.listen meanwhile; the first one
// says that it is taken.
func TestFabricPortTaken(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	cfg := config.Default()
	cfg.Fabric.Provider, cfg.Fabric.Listen = tcp.Name, other.Addr().String()
	var log bytes.Buffer
	o := NewOpener(cfg, zerolog.New(&log), nil)
	if fs, err := o.Open(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("%v, %v", fs, err)
	}
	o.Again = true
	fs, err := o.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer fs[0].Device.Close()
	if !strings.Contains(log.String(), string(event.FabricPortTaken)) || !strings.Contains(log.String(), cfg.Fabric.Listen) {
		t.Errorf("said: %s", log.String())
	}
}
