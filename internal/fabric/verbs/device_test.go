//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
)

// What the configuration names and the machine does not have is refused by the key.
func TestOpenRefuses(t *testing.T) {
	have := needDevice(t)
	linkLocal := slices.IndexFunc(have.Ports[0].GIDs, func(g GID) bool { return g.Addr.Is6() && g.Addr.IsLinkLocalUnicast() })
	if linkLocal >= 0 {
		linkLocal = have.Ports[0].GIDs[linkLocal].Index
	}
	before := live.Load()
	for name, c := range map[string]struct {
		change func(*Config)
		key    string
		is     error
		says   string
	}{
		"device":        {func(c *Config) { c.Device = "nothere0" }, "device", ErrNoDevice, have.Name},
		"port":          {func(c *Config) { c.Device, c.Port = have.Name, 200 }, "port", ErrNoPort, "not 200"},
		"GID index":     {func(c *Config) { c.GIDIndex = 255 }, "gid_index", ErrNoGID, "255"},
		"partition key": {func(c *Config) { c.PKeyIndex = 65535 }, "pkey_index", ErrNoPKey, "65535"},
		"MTU":           {func(c *Config) { c.MTU = 4096 }, "mtu", fabric.ErrNotSupported, "4096"},
		"link-local":    {func(c *Config) { c.Connect, c.GIDIndex = ConnectCM, linkLocal }, "connect", fabric.ErrNotSupported, "link-local"},
	} {
		if name == "MTU" && have.Ports[0].ActiveMTU == 4096 {
			continue
		}
		if name == "link-local" && linkLocal < 0 {
			continue
		}
		cfg := Default()
		c.change(&cfg)
		d, err := newProvider(t, cfg).Open(fabric.Options{})
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
	if n := live.Load() - before; n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

// An address that is in use is not said to be a missing module.
func TestListenerInUse(t *testing.T) {
	needDevice(t)
	cfg := Default()
	cfg.Connect = ConnectCM
	first := openDevice(t, cfg)
	defer first.Close()
	_, err := newProvider(t, cfg).Open(fabric.Options{Listen: first.cm.listen.String()})
	if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), first.cm.listen.String()) || strings.Contains(err.Error(), "module") {
		t.Error(err)
	}
}

func TestEmptyGID(t *testing.T) {
	have := needDevice(t)
	used := map[int]bool{}
	for _, g := range have.Ports[0].GIDs {
		used[g.Index] = true
	}
	cfg := Default()
	for used[cfg.GIDIndex] || cfg.GIDIndex < 0 {
		cfg.GIDIndex++
	}
	cfg.Device, cfg.Port = have.Name, have.Ports[0].Number
	if _, err := newProvider(t, cfg).Open(fabric.Options{}); !errors.Is(err, ErrNoGID) {
		t.Errorf("index %d: %v", cfg.GIDIndex, err)
	}
}

// Where no device is named, one that has the GID is taken, and not the first one that has not.
func TestDeviceByGID(t *testing.T) {
	inLab(t)
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(d DeviceInfo) bool { return len(d.Ports) == 0 || d.Ports[0].State != portActive })
	if len(all) < 2 {
		t.Skipf("needs two RDMA devices with an active port, as the guest of \"make lab\" has: there are %d", len(all))
	}
	first, second := all[0], all[1]
	last := func(d DeviceInfo) GID { return d.Ports[0].GIDs[len(d.Ports[0].GIDs)-1] }
	cfg := Default()
	for cfg.GIDIndex = last(second).Index; cfg.GIDIndex <= last(first).Index; cfg.GIDIndex++ {
		addr := fmt.Sprintf("10.77.0.%d/32", cfg.GIDIndex+1)
		ip(t, "addr", "add", addr, "dev", last(second).Netdev)
		t.Cleanup(func() { ip(t, "addr", "del", addr, "dev", last(second).Netdev) })
	}
	// It comes some time after its address.
	for start := time.Now(); ; {
		d, err := newProvider(t, cfg).Open(fabric.Options{})
		if err == nil {
			s := d.(*Device).Description()
			if err := d.Close(); err != nil || s.Device != second.Name {
				t.Errorf("%v, %v", s, err)
			}
			break
		}
		if time.Since(start) > patience {
			t.Fatal(err)
		}
	}
	cfg.Device = first.Name
	var oe *OpenError
	if _, err := newProvider(t, cfg).Open(fabric.Options{}); !errors.As(err, &oe) || oe.Key != "gid_index" || !errors.Is(err, ErrNoGID) {
		t.Errorf("%s is named: %v", first.Name, err)
	}
}

// New connections are told the LID that the port has, and not the one that it had when the device was opened.
func TestLIDOfNow(t *testing.T) {
	have := needDevice(t)
	d := openDevice(t, Default())
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if lid, _, err := d.portNow(); have.Ports[0].LinkLayer == linkEthernet && (lid != 0 || err != nil) {
		t.Errorf("on Ethernet: %d, %v", lid, err)
	}
	now, _, _, _, err := queryPort(d.ctx, d.port.Number)
	if err != nil {
		t.Fatal(err)
	}
	d.port.LinkLayer, d.port.LID = linkInfiniBand, now.LID+1
	if lid, _, err := d.portNow(); int(lid) != now.LID || err != nil {
		t.Errorf("%d, %v, and the port has %d", lid, err, now.LID)
	}
}

func TestDescribe(t *testing.T) {
	eachMode(t, func(t *testing.T, cfg Config) {
		d := openDevice(t, cfg)
		s := d.Description()
		t.Log(s)
		if s.Device != d.name || s.Mode != cfg.Connect || s.Why == "" || !validMTU(s.MTU) || (s.Listen != "") != (cfg.Connect == ConnectCM) {
			t.Errorf("%+v", s)
		}
		if c := d.Caps(); c.MaxInline > cfg.MaxInline || c.MaxSendDepth < 256 || !c.OrderedWrites {
			t.Errorf("%+v", c)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := d.AllocPD(); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("AllocPD after Close: %v", err)
		}
		if _, err := d.CreateCQ(1, nil); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("CreateCQ after Close: %v", err)
		}
	})
}

// Every device can be chosen by its name.
func TestDeviceByName(t *testing.T) {
	needDevice(t)
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range all {
		if len(info.Ports) == 0 || info.Ports[0].State != portActive {
			continue
		}
		cfg := Default()
		cfg.Device = info.Name
		d := openDevice(t, cfg)
		if s := d.Description(); s.Device != info.Name || s.GIDIndex != info.Ports[0].Chosen {
			t.Errorf("%s: %v", info.Name, s)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A device with users stays open.
func TestCloseInUse(t *testing.T) {
	needDevice(t)
	d := openDevice(t, Default())
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil {
		t.Error("closed with a protection domain")
	}
	mr, err := pd.Register(shm.AlignedBytes(4096), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := pd.Close(); err == nil {
		t.Error("protection domain closed with a region")
	}
	if err := errors.Join(mr.Close(), mr.Close(), pd.Close(), pd.Close(), d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

// Memory that cannot be locked is refused with the limit and what was asked for.
func TestRegisterError(t *testing.T) {
	err := registerError(&CallError{Call: "ibv_reg_mr", Errno: unix.ENOMEM}, 12345, Limits{MaxMR: 77})
	var le *LimitError
	if !errors.As(err, &le) || le.Asked != 12345 || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("%v", err)
	}
	for _, s := range []string{"12345", "RLIMIT_MEMLOCK", "77"} {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	other := &CallError{Call: "ibv_reg_mr", Errno: unix.EFAULT}
	if err := registerError(other, 1, Limits{}); err != error(other) {
		t.Errorf("%v", err)
	}
}

// inLab skips the test on machines whose network must not be touched.
func inLab(t *testing.T) {
	t.Helper()
	needDevice(t)
	if os.Getenv("RDMAD_LAB_GUEST") == "" {
		t.Skip("takes a network interface down: run this in the lab, make lab")
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// A port that goes down is an event, and so is its return; a device on it cannot be
// opened meanwhile.
func TestPortEvents(t *testing.T) {
	inLab(t)
	d := openDevice(t, Default())
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if _, open := <-d.Events(); open {
			t.Error("an event after Close")
		}
	}()
	netdev := d.gid.Netdev
	addr := fmt.Sprintf("%s/24", d.gid.Addr.Unmap())
	wait := func(kind EventKind) {
		t.Helper()
		for timeout := time.After(patience); ; {
			select {
			case ev := <-d.Events():
				if ev.Kind == kind && ev.Port == d.port.Number && ev.Device == d.name {
					return
				}
			case <-timeout:
				t.Fatalf("no event %q", kind)
			}
		}
	}
	ip(t, "link", "set", netdev, "down")
	wait(EventPortError)
	cfg := Default()
	cfg.Device = d.name
	if _, err := newProvider(t, cfg).Open(fabric.Options{}); !errors.Is(err, ErrPortDown) {
		t.Errorf("Open with the port down: %v", err)
	}
	ip(t, "link", "set", netdev, "up")
	wait(EventPortActive)
	if d.eventCount(EventPortError) == 0 || d.eventCount(EventPortActive) == 0 {
		t.Error("events were not counted")
	}
	// The address may have gone with the link.
	if out, _ := exec.Command("ip", "addr", "show", "dev", netdev).Output(); !strings.Contains(string(out), d.gid.Addr.Unmap().String()) {
		ip(t, "addr", "add", addr, "dev", netdev)
	}
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		if next, err := newProvider(t, cfg).Open(fabric.Options{}); err == nil {
			if got := next.(*Device).Description(); got.GID == d.gid.Addr {
				_ = next.Close()
				return
			}
			_ = next.Close()
		}
	}
	t.Error("the GID did not come back")
}

// Events that nobody takes are counted, and do not hold up the others.
func TestEventsDropped(t *testing.T) {
	needDevice(t)
	d := openDevice(t, Default())
	for range eventBacklog + 5 {
		d.publish(Event{Kind: EventGIDChange})
	}
	if n, m := d.eventsDropped(), d.eventCount(EventGIDChange); n < 5 || m < eventBacklog+5 {
		t.Errorf("%d dropped of %d", n, m)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A queue grows with its endpoints up to what the device has, and no further.
func TestQueueGrows(t *testing.T) {
	needDevice(t)
	r := newRig(t, Default(), 16, false)
	a, b := r.pair(200, 300)
	if q := r.cq[0]; q.lib.capacity() < 501 || q.stats.Resizes == 0 {
		t.Errorf("capacity %d after %d resizes", q.lib.capacity(), q.stats.Resizes)
	}
	if n, err := b.ep.PostRecv(make([]fabric.RecvWR, 300)); n != 300 || err != nil {
		t.Fatal(n, err)
	}
	for i := range 200 {
		if n, err := a.ep.PostSend([]fabric.SendWR{writeImm(a, b, 8, uint32(i))}); n != 1 || err != nil {
			t.Fatal(i, n, err)
		}
	}
	r.until("everything", func() bool { return r.count(0, fabric.OpWriteImm) == 200 && r.count(1, fabric.OpRecvImm) == 200 })

	limit := r.dev[0].info.Limits.MaxCQE
	var le *LimitError
	for range limit {
		depth := r.dev[0].limits.MaxSendDepth
		ep, err := a.pd.CreateEndpoint(fabric.EndpointAttr{CQ: r.cq[0], SendDepth: 1, RecvDepth: depth})
		if err != nil {
			if !errors.As(err, &le) || le.Limit > math.MaxInt32 {
				t.Errorf("%v", err)
			}
			break
		}
		defer func() { r.must(ep.Close()) }()
	}
	if le == nil {
		t.Error("no limit")
	}
	// Room comes back when endpoints have gone.
	before := r.cq[0].reserved
	r.must(a.ep.Close())
	r.poll()
	r.poll()
	if after := r.cq[0].reserved; after != before-501 {
		t.Errorf("%d reserved, and %d after Close", before, after)
	}
}
