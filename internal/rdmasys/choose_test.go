package rdmasys

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

func gid(index int, addr, kind string) verbs.GID {
	return verbs.GID{Index: index, Addr: netip.MustParseAddr(addr), Type: kind}
}

func TestChooseGID(t *testing.T) {
	v1, v2 := "RoCE v1", "RoCE v2"
	for _, c := range []struct {
		gids []verbs.GID
		want int
		why  string
	}{
		{nil, -1, "none of 0 is of RoCE"},
		{[]verbs.GID{gid(0, "fe80::1", "IB"), gid(1, "fe80::1", "")}, -1, "none of 2 is of RoCE"},
		{[]verbs.GID{gid(0, "fe80::1", v1), gid(1, "fe80::1", v2)}, 1, "RoCE v2, link-local, nothing better"},
		{[]verbs.GID{gid(0, "fe80::1", v1), gid(5, "2001:db8::1", v1)}, 5, "RoCE v1, IPv6"},
		{[]verbs.GID{gid(0, "fe80::1", v2), gid(5, "2001:db8::1", v1)}, 0, "RoCE v2, link-local, nothing better"},
		{[]verbs.GID{gid(3, "2001:db8::1", v2), gid(4, "::ffff:10.0.0.1", v1), gid(5, "::ffff:10.0.0.1", v2)}, 5, "RoCE v2, IPv4"},
		{[]verbs.GID{gid(256, "::ffff:10.0.0.1", v2), gid(255, "2001:db8::1", v2)}, 255, "RoCE v2, IPv6"},
		{[]verbs.GID{gid(7, "2001:db8::2", v2), gid(6, "2001:db8::1", v2)}, 6, "RoCE v2, IPv6"},
	} {
		if got, why := ChooseGID("Ethernet", c.gids); got != c.want || why != c.why {
			t.Errorf("%+v: %d %q, want %d %q", c.gids, got, why, c.want, c.why)
		}
	}
	if got, _ := ChooseGID("InfiniBand", []verbs.GID{gid(0, "fe80::1", "IB"), gid(1, "2001:db8::1", "IB")}); got != 0 {
		t.Errorf("InfiniBand: %d", got)
	}
	if got, why := ChooseGID("InfiniBand", []verbs.GID{gid(1, "fe80::1", "IB")}); got != -1 || why != "the port has no GID 0" {
		t.Errorf("InfiniBand without its own: %d %q", got, why)
	}
}

func TestChoose(t *testing.T) {
	port := func(n int, state string, gids ...verbs.GID) verbs.PortInfo {
		return verbs.PortInfo{Number: n, State: state, GIDs: gids}
	}
	g := gid(0, "fe80::1", "IB")
	down := verbs.DeviceInfo{Name: "down", Ports: []verbs.PortInfo{port(1, "DOWN")}}
	late := verbs.DeviceInfo{Name: "late", Ports: []verbs.PortInfo{port(1, "INIT", g), port(2, Active, g)}}
	bare := verbs.DeviceInfo{Name: "bare", Ports: []verbs.PortInfo{port(1, Active)}}
	shut := verbs.DeviceInfo{Name: "shut", Err: "permission denied"}
	none := verbs.DeviceInfo{Name: "none"}
	odd := verbs.DeviceInfo{Name: "odd", Ports: []verbs.PortInfo{port(1, "")}}
	all := []verbs.DeviceInfo{down, shut, bare, late, none, odd}
	for _, c := range []struct {
		devices []verbs.DeviceInfo
		device  string
		port    int
		want    string // "device/port" or what the error says
	}{
		{nil, "", 0, "no RDMA device"},
		{nil, "mlx5_0", 0, `not "mlx5_0" (verbs.device)`},
		{all, "", 0, "late/2"},
		{all, "", 2, "late/2"},
		{all, "late", 1, "port 1 of late is INIT"},
		{all, "late", 3, "late has no port 3 (verbs.port); its ports: 2"},
		{all, "down", 0, "port 1 of down is DOWN"},
		{all, "bare", 0, "port 1 of bare has no GID"},
		{all, "shut", 0, "shut cannot be opened: permission denied"},
		{all, "none", 0, "none has no port"},
		{all, "odd", 0, "in an unknown state"},
		{all, "nope", 0, `no device "nope" (verbs.device), but down, shut, bare, late, none, odd`},
		{[]verbs.DeviceInfo{down, shut}, "", 0, "port 1 of down is DOWN; shut cannot be opened"},
	} {
		d, p, err := Choose(c.devices, c.device, c.port, verbs.AutoGID)
		got := d.Name + "/" + string(rune('0'+p.Number))
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || len(c.devices) == 0 != errors.Is(err, ErrNoDevice) {
			t.Errorf("device %q, port %d: %s, want %s", c.device, c.port, got, c.want)
		}
	}
}

// A port without the GID that is wanted is taken only if there is no better one, and then checks say what it lacks.
func TestChooseByGID(t *testing.T) {
	port := func(n, chosen int, gids ...verbs.GID) verbs.PortInfo {
		return verbs.PortInfo{Number: n, State: Active, GIDs: gids, Chosen: chosen}
	}
	iwarp := verbs.DeviceInfo{Name: "iwarp", Ports: []verbs.PortInfo{port(1, -1, gid(0, "fe80::1", "IB"))}}
	roce := verbs.DeviceInfo{Name: "roce", Ports: []verbs.PortInfo{
		port(1, -1, gid(0, "fe80::1", "IB")), port(2, 0, gid(0, "fe80::1", "RoCE v2")), port(3, 0, gid(0, "fe80::1", "RoCE v2"), gid(3, "2001:db8::1", "RoCE v2")),
	}}
	for _, c := range []struct {
		devices   []verbs.DeviceInfo
		port, gid int
		want      string
	}{
		{[]verbs.DeviceInfo{iwarp, roce}, 0, verbs.AutoGID, "roce/2"},
		{[]verbs.DeviceInfo{iwarp, roce}, 0, 0, "iwarp/1"},
		{[]verbs.DeviceInfo{iwarp, roce}, 0, 3, "roce/3"},
		{[]verbs.DeviceInfo{iwarp, roce}, 0, 4, "iwarp/1"},
		{[]verbs.DeviceInfo{iwarp, roce}, 1, verbs.AutoGID, "iwarp/1"},
		{[]verbs.DeviceInfo{iwarp}, 0, verbs.AutoGID, "iwarp/1"},
	} {
		d, p, err := Choose(c.devices, "", c.port, c.gid)
		if got := d.Name + "/" + string(rune('0'+p.Number)); err != nil || got != c.want {
			t.Errorf("port %d, GID %d: %s, %v, want %s", c.port, c.gid, got, err, c.want)
		}
	}
}
