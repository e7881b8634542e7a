package config

import (
	"fmt"
	"strings"
)

// libfabricKeys are the keys of [libfabric]. Their defaults are those of the provider's own
// Default, which this package cannot import; a test of the daemon compares them.
func libfabricKeys() []key {
	return []key{
		bind("provider", "tcp;ofi_rxm", func(l *Libfabric) *string { return &l.Provider },
			text(`a name that libfabric has for a provider, such as "tcp;ofi_rxm", "shm" or "efa", of at most 63 bytes`, libfabricName),
			"The provider of libfabric, the same on all nodes. \"shm\" is for processes of one user on one host. What there is here: rdmad devices."),
		bind("domain", "", func(l *Libfabric) *string { return &l.Domain },
			text(`a name such as "eth0" or "mlx5_0", of at most 63 bytes, or "" for the first one`, optional(libfabricName)),
			"The provider's domain: a network interface or a device."),
		bind("source", "", func(l *Libfabric) *string { return &l.Source },
			text(`an IP address or host name without a port, or "" for fabric.advertise or what stands for it`, optional(hostOnly)),
			"The address of this node that a provider over IP uses."),
	}
}

// libfabricName checks what libfabric calls a provider or a domain.
func libfabricName(s string) error {
	bad := func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r >= 0x7f }
	if s == "" || len(s) > 63 || strings.ContainsFunc(s, bad) {
		return fmt.Errorf("must be a name that libfabric has, such as \"tcp;ofi_rxm\", of at most 63 bytes without spaces and quotes, got %q", s)
	}
	return nil
}
