package config

import (
	"fmt"
	"net"
	"net/netip"
)

// Warnings returns what is allowed and perhaps not meant, a sentence for each.
func (c *Config) Warnings() (list []string) {
	if a := c.Observe.Listen; a != "" && !onLoopback(a) {
		list = append(list, fmt.Sprintf("observe.listen: anybody who reaches %s can read the state of the node, there is no authentication", a))
	}
	return list
}

// onLoopback reports whether only this machine reaches an address to listen at.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
