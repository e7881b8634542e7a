package daemon

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/peerauth"
	"github.com/rdmad/rdmad/internal/status"
)

// channelStatus describes the channel's protection; nil if it has none.
func channelStatus(ch *peerauth.Channel) *status.Channel {
	if ch.State == nil {
		return nil
	}
	return &status.Channel{
		Version: tls.VersionName(ch.State.Version), Cipher: tls.CipherSuiteName(ch.State.CipherSuite),
		Peer: *certStatus(ch.State.PeerCertificates[0]),
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
