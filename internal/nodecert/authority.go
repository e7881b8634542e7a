package nodecert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
)

// The types of PEM blocks.
const (
	certBlock = "CERTIFICATE"
	keyBlock  = "PRIVATE KEY"
)

// backdate is how far the clock of another node may be behind.
const backdate = 5 * time.Minute

// nowhere is a domain that nobody has: the only one whose names an authority made
// here may certify.
const nowhere = "rdmad.invalid"

// Authority can sign certificates of nodes.
type Authority struct {
	// Cert is its certificate.
	Cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes an authority for a cluster. What it may certify is bounded by its
// own certificate: names of nodes, no authorities, no hosts. Everybody who has a node's
// certificate trusts it, but for nothing else.
func NewAuthority(cluster string, valid time.Duration) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return authorityOf(key, cluster, valid)
}

// authorityOf is NewAuthority with a key.
func authorityOf(key crypto.Signer, cluster string, valid time.Duration) (*Authority, error) {
	now := time.Now()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "rdmad CA of " + cluster, Organization: []string{cluster}},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(valid),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
		PermittedDNSDomainsCritical: true,
		PermittedURIDomains:         []string{host},
		PermittedDNSDomains:         []string{nowhere},
		PermittedEmailAddresses:     []string{nowhere},
		ExcludedIPRanges:            []*net.IPNet{{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}},
	}
	cert, err := sign(template, key, nil, nil)
	return &Authority{Cert: cert, key: key}, err
}

// OpenAuthority makes an authority of its certificate and key, both PEM.
func OpenAuthority(cert, key []byte) (*Authority, error) {
	list, err := authorities(cert)
	if err != nil {
		return nil, err
	}
	a := &Authority{Cert: list[0]}
	if a.key, err = parseKey(key); err != nil {
		return nil, err
	}
	public, ok := a.key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(a.Cert.PublicKey) {
		return nil, errors.New("the private key is not that of the certificate")
	}
	return a, nil
}

// parseKey returns the private key of a PEM file.
func parseKey(data []byte) (crypto.Signer, error) {
	b, _ := pem.Decode(data)
	if b == nil || b.Type != keyBlock {
		return nil, errors.New("no private key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, errors.New("the private key cannot sign")
	}
	return key, nil
}

// Cluster returns the name of the cluster.
func (a *Authority) Cluster() string {
	if len(a.Cert.Subject.Organization) == 0 {
		return ""
	}
	return a.Cert.Subject.Organization[0]
}

// valid returns how long it was made to be valid.
func (a *Authority) valid() time.Duration { return a.Cert.NotAfter.Sub(a.Cert.NotBefore) - backdate }

// PEM returns the certificate and the key.
func (a *Authority) PEM() (cert, key []byte, err error) { return encode(a.Cert, a.key) }

// Request is what a certificate is to be like other than usual. Tests make
// certificates with it that nodes must refuse.
type Request struct {
	// Node is the name.
	Node string
	// From and Until bound its validity. A zero From is a little before now.
	From, Until time.Time
	// Usages are the extended key usages; nil: server and client.
	Usages []x509.ExtKeyUsage
	// URIs replace the name of the node unless nil.
	URIs []*url.URL
}

// Issue makes a certificate and a key for a node, both PEM. It is valid no longer than
// the authority.
func (a *Authority) Issue(r Request) (cert, key []byte, err error) {
	if err := CheckName(r.Node); err != nil {
		return nil, nil, err
	}
	if r.From.IsZero() {
		r.From = time.Now().Add(-backdate)
	}
	if r.Until.After(a.Cert.NotAfter) {
		r.Until = a.Cert.NotAfter
	}
	if r.Usages == nil {
		r.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	if r.URIs == nil {
		r.URIs = []*url.URL{URI(r.Node)}
	}
	c, k, err := issue(&x509.Certificate{
		Subject:   pkix.Name{CommonName: r.Node, Organization: a.Cert.Subject.Organization},
		NotBefore: r.From, NotAfter: r.Until, URIs: r.URIs,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: r.Usages, BasicConstraintsValid: true,
	}, a.Cert, a.key)
	if err != nil {
		return nil, nil, err
	}
	return encode(c, k)
}

// issue makes a key and a certificate for it.
func issue(template, parent *x509.Certificate, signer crypto.Signer) (*x509.Certificate, crypto.Signer, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	cert, err := sign(template, key, parent, signer)
	return cert, key, err
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// sign makes a certificate for a key; without a parent it signs itself.
func sign(template *x509.Certificate, key crypto.Signer, parent *x509.Certificate, signer crypto.Signer) (*x509.Certificate, error) {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126)); err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template.SerialNumber.Add(template.SerialNumber, big.NewInt(1)) // never 0
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

func encode(cert *x509.Certificate, key crypto.Signer) (certPEM, keyPEM []byte, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: cert.Raw}), pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// Fingerprint returns the SHA-256 of a certificate in hexadecimal digits.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}
