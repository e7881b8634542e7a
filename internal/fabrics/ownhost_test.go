package fabrics

import (
	"net"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/config"
)

func TestOwnHost(t *testing.T) {
	var list []net.Addr
	add := func(s string) {
		ip, n, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	for _, c := range []struct{ add, want string }{
		{"127.0.0.1/8", "127.0.0.1"}, {"fe80::1/64", "127.0.0.1"}, {"2001:db8::1/64", "2001:db8::1"}, {"192.0.2.7/24", "192.0.2.7"}, {"192.0.2.8/24", "192.0.2.7"},
	} {
		add(c.add)
		if got := ownHost(list); got != c.want {
			t.Errorf("with %s, too: %s, want %s", c.add, got, c.want)
		}
	}
}

// The route to a peer with an address is found whatever names there are, and names that nobody knows do not take long.
func TestAdvertisedHost(t *testing.T) {
	cfg := config.Default()
	cfg.Fabric.Listen, cfg.Node.Listen = ":0", ":7471"
	for range 20 {
		cfg.Peers = append(cfg.Peers, config.Peer{Name: "n", Address: "nobody.invalid:7471"})
	}
	began := time.Now()
	if host, routed := advertisedHost(cfg); net.ParseIP(host) == nil || routed {
		t.Errorf("advertised as %q", host)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
	cfg.Peers = append(cfg.Peers, config.Peer{Name: "m", Address: "127.0.0.9:7471"})
	if host, _ := advertisedHost(cfg); host != "127.0.0.1" {
		t.Errorf("advertised as %q to a peer on the loopback interface", host)
	}
	cfg.Node.Listen = "127.0.0.5:7471"
	if host, _ := advertisedHost(cfg); host != "127.0.0.5" {
		t.Errorf("advertised as %q", host)
	}
}
