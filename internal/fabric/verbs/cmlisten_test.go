//go:build verbs && cgo && linux

package verbs

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// What is advertised chooses among the addresses of the port, by a name as well, and says nothing if it is not one of them.
func TestListenAddress(t *testing.T) {
	best := gid(0, "::ffff:10.9.9.1", gidRoCEv2)
	port := PortInfo{LinkLayer: linkEthernet, GIDs: []GID{best, gid(1, "::ffff:127.0.0.1", gidRoCEv2)}}
	d := &Device{found: &found{gid: best, port: port}}
	for _, c := range []struct{ listen, advertise, want string }{
		{"0.0.0.0:7", "", "10.9.9.1:7"},
		{"0.0.0.0:7", "127.0.0.1", "127.0.0.1:7"},
		{"0.0.0.0:7", "localhost", "127.0.0.1:7"},
		{"0.0.0.0:7", "127.0.0.2", "10.9.9.1:7"},
		{"0.0.0.0:7", "nobody.invalid", "10.9.9.1:7"},
		{"10.9.9.2:7", "localhost", "10.9.9.2:7"},
	} {
		at, err := d.listenAddress(fabric.Options{Listen: c.listen, Advertise: c.advertise})
		if err != nil || at.String() != c.want {
			t.Errorf("listen %q, advertise %q: %v, %v, want %s", c.listen, c.advertise, at, err, c.want)
		}
	}
}
