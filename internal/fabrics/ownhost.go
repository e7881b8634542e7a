package fabrics

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmad/rdmad/internal/config"
)

// lookupTimeout bounds a search for addresses, of however many names: the core serves nobody meanwhile, and a name server that
// does not answer takes ten seconds for each name.
const lookupTimeout = time.Second

// advertisedHost is the address of this node that peers can reach, when the config does not say: the one that listen or
// node.listen names, or else the one of the route to the first peer that has one. Known is false if there is none of these:
// then it is one of this machine's.
func advertisedHost(cfg *config.Config, listen string) (host string, known bool) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	if host := boundHost(ctx, listen); reachable(host) {
		return host, true
	}
	own := boundHost(ctx, cfg.Node.Listen)
	// Many machines have their own name for a loopback address, which no peer elsewhere can use; this node does not listen there for data.
	looped := isName(cfg.Node.Listen) && isLoopback(own)
	if reachable(own) && !looped {
		return own, true
	}
	if host := routedHost(ctx, cfg.Peers); host != "" {
		return host, true
	}
	if looped {
		return own, true
	}
	addresses, _ := net.InterfaceAddrs() // or none
	return ownHost(addresses), false
}

// reachable reports whether there is an address, and it means something elsewhere: one with a zone is of an interface of this machine.
func reachable(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Zone() == ""
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// isName reports whether the host of host:port is a name.
func isName(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err == nil {
		_, err = netip.ParseAddr(host)
		return err != nil && host != ""
	}
	return false
}

// withAddress returns a host:port to listen at with the address that its host stands for, if that is a name that has one.
func withAddress(listen string) string {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	host := boundHost(ctx, listen)
	_, port, err := net.SplitHostPort(listen)
	if host == "" || err != nil {
		return listen
	}
	return net.JoinHostPort(host, port)
}

// boundHost is the address that who listens at host:port is bound to: "" if that is every address, or the host a name that
// this node cannot look up. It is never a name: peers may know another address by it, or none.
func boundHost(ctx context.Context, address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return ""
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		ip, err = lookedUp(ctx, host)
	}
	if err != nil || ip.Unmap().IsUnspecified() {
		return ""
	}
	return ip.Unmap().String()
}

// lookedUp is the address of a name that net.Listen takes: the first of IPv4, if there is one.
func lookedUp(ctx context.Context, name string) (netip.Addr, error) {
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return netip.Addr{}, err
	}
	first := slices.IndexFunc(list, func(a netip.Addr) bool { return a.Unmap().Is4() })
	return list[max(0, first)], nil // a name without addresses is an error
}

// routedHost is the address that this node uses towards the first peer that there is a route to, or "".
func routedHost(ctx context.Context, peers []config.Peer) string {
	for _, named := range []bool{false, true} { // addresses first: names may take all the time
		for _, p := range peers {
			if host, _, err := net.SplitHostPort(p.Address); err != nil || named == (net.ParseIP(host) != nil) {
				continue
			}
			bound := ctx
			if !named { // which takes no time, and there may be none left
				bound = context.Background()
			}
			// Connecting a UDP socket sends nothing; it asks for the route.
			c, err := new(net.Dialer).DialContext(bound, "udp", p.Address)
			if err != nil {
				continue
			}
			host, _, err := net.SplitHostPort(c.LocalAddr().String())
			_ = c.Close()
			if err == nil {
				return host
			}
		}
	}
	return ""
}

// ownHost is the first address by which others can reach a machine that has these, of IPv4 if there is one, and the
// loopback address without any.
func ownHost(addresses []net.Addr) string {
	host := ""
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil:
			return n.IP.String()
		case host == "":
			host = n.IP.String()
		}
	}
	return cmp.Or(host, "127.0.0.1")
}
