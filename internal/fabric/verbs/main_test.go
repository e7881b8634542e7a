//go:build verbs && cgo && linux

package verbs

import (
	"slices"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// needDevice skips the test unless there is an RDMA device with an active port, and
// returns it.
func needDevice(t testing.TB) DeviceInfo {
	t.Helper()
	all, err := Devices()
	if err != nil {
		t.Skipf("no RDMA here (%v): run this in the lab, docs/lab.md", err)
	}
	for _, d := range all {
		if slices.ContainsFunc(d.Ports, func(p PortInfo) bool { return p.State == portActive }) {
			return d
		}
	}
	t.Skipf("none of %d RDMA devices has an active port: run this in the lab, docs/lab.md", len(all))
	return DeviceInfo{}
}

func newProvider(t testing.TB, cfg Config) fabric.Provider {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
