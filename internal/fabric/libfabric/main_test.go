//go:build libfabric && cgo && linux

package libfabric

import (
	"slices"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tested are the providers that every machine with libfabric has.
var tested = []string{"tcp;ofi_rxm", "shm"}

// eachProvider runs a test with every provider that there is.
func eachProvider(t *testing.T, test func(t *testing.T, cfg Config)) {
	t.Helper()
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tested {
		t.Run(name, func(t *testing.T) {
			if !slices.ContainsFunc(all, func(d DeviceInfo) bool { return d.Provider == name && d.Usable }) {
				t.Skipf("libfabric has no %s here", name)
			}
			test(t, Config{Provider: name})
		})
	}
}

func newProvider(t testing.TB, cfg Config) fabric.Provider {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
