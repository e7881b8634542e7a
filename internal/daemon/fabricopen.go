package daemon

import (
	"fmt"
	"net"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
)

// openFabric opens the device that the config names. It runs in the core, which
// forks nothing afterwards.
func openFabric(cfg *config.Config, log zerolog.Logger) (fabric.Device, error) {
	var provider fabric.Provider
	switch cfg.Fabric.Provider {
	case "tcp":
		provider = tcp.New(tcp.Config{})
	case "auto":
		log.Warn().Msg("fabric.provider is \"auto\" and this build has no RDMA provider: using tcp")
		provider = tcp.New(tcp.Config{})
	default:
		return nil, fmt.Errorf("fabric.provider = %q: %w by this build (built in: tcp)", cfg.Fabric.Provider, fabric.ErrNotSupported)
	}
	advertise := cfg.Fabric.Advertise
	if advertise == "" {
		advertise = advertisedHost(cfg)
	}
	dev, err := provider.Open(fabric.Options{Listen: cfg.Fabric.Listen, Advertise: advertise})
	if err != nil {
		return nil, fmt.Errorf("fabric %s: %w", provider.Name(), err)
	}
	log.Info().Str("provider", provider.Name()).Str("advertise", advertise).Msg("fabric open")
	return dev, nil
}

// advertisedHost is the address of this node that peers can reach, when the
// config does not say: the one of the route to the first peer.
func advertisedHost(cfg *config.Config) string {
	for _, address := range []string{cfg.Fabric.Listen, cfg.Node.Listen} {
		if host, _, err := net.SplitHostPort(address); err == nil {
			if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
				return host
			}
		}
	}
	for _, p := range cfg.Peers {
		// Connecting a UDP socket sends nothing; it asks for the route.
		c, err := net.Dial("udp", p.Address)
		if err != nil {
			continue
		}
		host, _, err := net.SplitHostPort(c.LocalAddr().String())
		_ = c.Close()
		if err == nil {
			return host
		}
	}
	return "127.0.0.1"
}
