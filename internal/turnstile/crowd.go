package turnstile

import "net/netip"

// OldestOfMost returns the index of who is to make room where those of some hosts wait, the oldest first: the oldest of the host
// that has most of them. Of hosts that have as many it is that one whose network has most: with IPv6 a host may have any number
// of addresses, but those of its network only. Not the other way round, because a whole cluster may be in one network.
func OldestOfMost(hosts []string) int {
	of, in := make(map[string]int), make(map[string]int)
	for _, h := range hosts {
		of[h]++
	}
	for h, n := range of {
		in[network(h)] += n
	}
	best := 0
	for i, h := range hosts {
		if b := hosts[best]; of[h] > of[b] || of[h] == of[b] && h != b && in[network(h)] > in[network(b)] {
			best = i
		}
	}
	return best
}

// network returns what the addresses of one host have in common: the first half of one of IPv6, and all of another one, or of
// what is no address.
func network(host string) string {
	a, err := netip.ParseAddr(host)
	if err != nil || !a.Is6() || a.Is4In6() {
		return host
	}
	p, _ := a.Prefix(64) // without the zone
	return p.String()
}
