package fabrics

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
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
	if host, known := advertisedHost(cfg, cfg.Fabric.Listen); net.ParseIP(host) == nil || known {
		t.Errorf("advertised as %q", host)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("took %v", took)
	}
	cfg.Peers = append(cfg.Peers, config.Peer{Name: "m", Address: "127.0.0.9:7471"})
	if host, _ := advertisedHost(cfg, cfg.Fabric.Listen); host != "127.0.0.1" {
		t.Errorf("advertised as %q to a peer on the loopback interface", host)
	}
	cfg.Node.Listen = "127.0.0.5:7471"
	if host, _ := advertisedHost(cfg, cfg.Fabric.Listen); host != "127.0.0.5" {
		t.Errorf("advertised as %q", host)
	}
}

// A host that a key names counts, an address or a name, and peers are told its address; one that means every address, or
// that nobody knows, does not count.
func TestAdvertisedHostNamed(t *testing.T) {
	for _, c := range []struct {
		fabric, node, want string // want is empty if none counts
	}{
		{":0", "0.0.0.0:7471", ""},
		{"[::]:0", ":7471", ""},
		{"127.0.0.4:0", "127.0.0.5:7471", "127.0.0.4"},
		{"localhost:0", "127.0.0.5:7471", "127.0.0.1"},
		{"0.0.0.0:0", "localhost:7471", "127.0.0.1"},
		{"nobody.invalid:0", "127.0.0.5:7471", "127.0.0.5"},
		{"0.0.0.0:0", "nobody.invalid:7471", ""},
		{"[fe80::1%lo]:0", "127.0.0.5:7471", "127.0.0.5"},
		{"0.0.0.0:0", "[fe80::1%lo]:7471", ""},
		{"[::ffff:127.0.0.4]:0", "", "127.0.0.4"},
	} {
		cfg := config.Default()
		cfg.Fabric.Listen, cfg.Node.Listen = c.fabric, c.node
		host, known := advertisedHost(cfg, cfg.Fabric.Listen)
		if known != (c.want != "") || known && host != c.want {
			t.Errorf("fabric.listen = %q, node.listen = %q: %q, %v, want %q", c.fabric, c.node, host, known, c.want)
		}
	}
}

// A name of this machine that stands for a loopback address, as in many /etc/hosts, does not count where there is a route to a peer.
func TestAdvertisedLoopbackName(t *testing.T) {
	cfg := config.Default()
	cfg.Fabric.Listen, cfg.Node.Listen = ":0", "localhost:7471"
	cfg.Peers = []config.Peer{{Name: "m", Address: "127.0.0.9:7471"}}
	if looped, _ := advertisedHost(cfg, "127.0.0.3:0"); looped != "127.0.0.3" {
		t.Errorf("listened at 127.0.0.3, advertised as %q", looped)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	own := ownHost(addresses)
	if own == "127.0.0.1" {
		t.Skip("this machine has no address but loopback ones; run it where there is a network interface")
	}
	cfg.Peers[0].Address = net.JoinHostPort(own, "7471")
	if host, known := advertisedHost(cfg, cfg.Fabric.Listen); host != own || !known {
		t.Errorf("with a peer at %s: %q, %v", own, host, known)
	}
}

// A name server that does not answer in time keeps nobody from the route to a peer whose address is known.
func TestRoutedHostWithoutTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	peers := []config.Peer{{Name: "n", Address: "localhost:7471"}, {Name: "m", Address: "127.0.0.9:7471"}}
	if host := routedHost(ctx, peers); host != "127.0.0.1" {
		t.Errorf("the route begins at %q", host)
	}
}

// Where a name is listened at, peers are told the address that the listener has.
func TestAdvertisedNameIsListenedAt(t *testing.T) {
	cfg := config.Default()
	cfg.Fabric.Listen = "localhost:0"
	list, err := NewOpener(cfg, zerolog.Nop(), nil).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer list[0].Device.Close()
	bound := list[0].Device.(*tcp.Device).Addr().(*net.TCPAddr).IP.String()
	if want := "advertised as " + bound; list[0].Detail != want {
		t.Errorf("%q, want %q", list[0].Detail, want)
	}
}

// An address to listen at keeps its port, and what cannot be looked up stays for the listener to refuse.
func TestWithAddress(t *testing.T) {
	for listen, want := range map[string]string{
		"localhost:7472": "127.0.0.1:7472", "[::1]:7472": "[::1]:7472", ":7472": ":7472", "0.0.0.0:0": "0.0.0.0:0", "nobody.invalid:1": "nobody.invalid:1",
	} {
		if got := withAddress(listen); got != want {
			t.Errorf("%q: %q, want %q", listen, got, want)
		}
	}
}
