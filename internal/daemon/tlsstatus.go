package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/rdmad/rdmad/internal/nodecert"
)

// CertStatus describes the certificate of a node. It is empty if the node's own files could not be used yet.
type CertStatus struct {
	// Name is the name in it, as a URI.
	Name     string    `json:"name"`
	NotAfter time.Time `json:"not_after"`
	// Fingerprint is its SHA-256.
	Fingerprint string `json:"fingerprint"`
}

// LinkTLS is the TLS of a bootstrap connection.
type LinkTLS struct {
	Version string `json:"version"`
	Cipher  string `json:"cipher"`
	// Peer is the certificate that the peer has shown.
	Peer CertStatus `json:"peer"`
}

// RefusalStatus is why connections of peers were refused.
type RefusalStatus struct {
	// From is the host that they came from.
	From string `json:"from"`
	// Reason is a word for programs, such as "no-tls" or "certificate-expired", or
	// the first part of the text.
	Reason string `json:"reason"`
	// Text says what was expected, what came, and what to do about it.
	Text  string `json:"text"`
	Count uint64 `json:"count"`
	// AgeS is how long ago the last one was, in seconds.
	AgeS float64 `json:"age_s"`
}

// status describes the channel's protection; nil if it has none.
func (ch *channel) status() *LinkTLS {
	if ch.state == nil {
		return nil
	}
	return &LinkTLS{
		Version: tls.VersionName(ch.state.Version), Cipher: tls.CipherSuiteName(ch.state.CipherSuite),
		Peer: *certStatus(ch.state.PeerCertificates[0]),
	}
}

// certStatus describes a certificate of a node.
func certStatus(c *x509.Certificate) *CertStatus {
	s := &CertStatus{NotAfter: c.NotAfter.UTC(), Fingerprint: nodecert.Fingerprint(c)}
	if node, err := nodecert.NameOf(c); err == nil {
		s.Name = nodecert.URI(node).String()
	}
	return s
}
