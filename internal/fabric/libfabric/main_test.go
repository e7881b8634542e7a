//go:build libfabric && cgo && linux

package libfabric

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/leaktest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// As in a daemon, the library is first used for what it is to do.
	if _, err := listInfo(query{provider: strings.Split(*tested, ",")[0]}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leaktest.Main(m)
}

// tested are the providers that every machine with libfabric has.
var tested = flag.String("rdmad.libfabric", "tcp;ofi_rxm,shm", "the providers of libfabric to test, with commas in between")

// seeds is how many orders of writes are tried.
var seeds = flag.Int("rdmad.seeds", 2, "seeds of the tests that reorder writes")

// eachProvider runs a test with every provider that there is.
func eachProvider(t *testing.T, test func(t *testing.T, cfg Config)) {
	t.Helper()
	all, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Split(*tested, ",") {
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
