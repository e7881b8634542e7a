package daemon

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/status"
)

// status describes the channel's protection; nil if it has none.
func (ch *channel) status() *status.Channel {
	if ch.state == nil {
		return nil
	}
	return &status.Channel{
		Version: tls.VersionName(ch.state.Version), Cipher: tls.CipherSuiteName(ch.state.CipherSuite),
		Peer: *certStatus(ch.state.PeerCertificates[0]),
	}
}

// certStatus describes a certificate of a node.
func certStatus(c *x509.Certificate) *status.Certificate {
	s := &status.Certificate{NotAfter: c.NotAfter.UTC(), Fingerprint: nodecert.Fingerprint(c)}
	if node, err := nodecert.NameOf(c); err == nil {
		s.Name = nodecert.URI(node).String()
	}
	return s
}
