package main

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/verbs"
)

func testDevices() []verbs.DeviceInfo {
	return []verbs.DeviceInfo{
		{Name: "mlx5_0", Node: "/dev/infiniband/uverbs0", Err: "permission denied"},
		{
			Name: "rxe0", Node: "/dev/infiniband/uverbs1", GUID: "5054:00ff:fe12:3456",
			Limits: verbs.Limits{MaxQP: 1000, MaxQPWR: 2000, MaxRdAtomic: 128, Atomic: true},
			Ports: []verbs.PortInfo{{
				Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", MaxMTU: 4096, ActiveMTU: 1024, Chosen: 1, Why: "routable, RoCE v2",
				GIDs: []verbs.GID{
					{Index: 0, Addr: netip.MustParseAddr("fe80::1"), Type: "RoCE v1"},
					{Index: 1, Addr: netip.MustParseAddr("::ffff:192.0.2.1"), Type: "RoCE v2", Netdev: "eth0"},
				},
			}},
		},
	}
}

func TestDevicesText(t *testing.T) {
	known := devicesText(describeDevices(testDevices(), fromVerbs), nil)
	less := devicesText(describeDevices(testDevices(), fromSysfs), errors.New("no such library"))
	for _, want := range []string{
		"device mlx5_0: node /dev/infiniband/uverbs0", "cannot be opened: permission denied",
		"port 1: ACTIVE, Ethernet, MTU 1024 of 4096, LID 0 <- used",
		"\n    0      fe80::1           RoCE v1  -\n",
		"\n    1      ::ffff:192.0.2.1  RoCE v2  eth0    <- chosen: routable, RoCE v2\n",
	} {
		for _, text := range []string{known, less} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in:\n%s", want, text)
			}
		}
	}
	if !strings.Contains(known, "1000 QPs of 2000 WRs") || !strings.Contains(known, "128 reads and atomics per QP, atomics: yes, among") || strings.Contains(known, "not known") {
		t.Errorf("with limits:\n%s", known)
	}
	if strings.Contains(less, "QPs") || !strings.Contains(less, "Limits are not known: no such library.") {
		t.Errorf("without limits:\n%s", less)
	}
	if text := devicesText(describeDevices(testDevices()[:1], fromVerbs), nil); !strings.Contains(text, "None of them can be used: mlx5_0 cannot be opened") {
		t.Errorf("one that cannot be used:\n%s", text)
	}
	if text := devicesText(nil, nil); !strings.Contains(text, "no RDMA device") || !strings.Contains(text, "rdma link add") {
		t.Errorf("no device:\n%s", text)
	}
}

func TestDevicesJSON(t *testing.T) {
	encode := func(list []device) string {
		var b strings.Builder
		if err := writeJSON(&b, list); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := encode(describeDevices(nil, fromSysfs)); got != "[]\n" {
		t.Errorf("no devices: %q", got)
	}
	var got []struct {
		Name   string
		Used   bool
		Limits map[string]any
		Ports  []struct{ GIDs []struct{ GID, Type string } }
	}
	if err := json.Unmarshal([]byte(encode(describeDevices(testDevices(), fromVerbs))), &got); err != nil {
		t.Fatal(err)
	}
	if got[0].Used || got[0].Limits != nil || !got[1].Used || got[1].Limits["max_qp"] != 1000.0 || got[1].Ports[0].GIDs[1].GID != "::ffff:192.0.2.1" {
		t.Errorf("%+v", got)
	}
	if empty := encode(describeDevices([]verbs.DeviceInfo{{Ports: make([]verbs.PortInfo, 1)}, {}}, fromVerbs)); !strings.Contains(empty, `"gids": []`) || !strings.Contains(empty, `"ports": []`) {
		t.Errorf("empty lists:\n%s", empty)
	}
	if less := encode(describeDevices(testDevices(), fromSysfs)); strings.Count(less, `"limits": null`) != 2 || strings.Contains(less, "max_qp") {
		t.Errorf("limits that are not known:\n%s", less)
	}
}

func TestDevicesFromSys(t *testing.T) {
	if verbs.Built {
		t.Skip("this build asks libibverbs; this is about builds without it: go test without -tags verbs")
	}
	root := fstest.MapFS{"sys/class/infiniband/rxe0/ports/1/state": &fstest.MapFile{Data: []byte("4: ACTIVE\n")}}
	got, source, why, err := rdmaDevices(root)
	if err != nil || !errors.Is(why, fabric.ErrNotSupported) || source != fromSysfs || len(got) != 1 || got[0].Ports[0].State != "ACTIVE" {
		t.Errorf("%+v, %s, %v", got, source, err)
	}
}
