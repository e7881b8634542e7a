package nodecert

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// maxFile bounds the files, in bytes: room for a chain, or for many authorities.
const maxFile = 256 << 10

// Files are the paths of a node's certificate, its private key, and the authorities
// that it trusts, all PEM.
type Files struct{ Cert, Key, CA string }

// Opener opens a file by its absolute path.
type Opener func(path string) (fs.File, error)

// Open is the Opener of this machine. It does not wait, whatever kind of file it is.
func Open(path string) (fs.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// Material is what a node has to show and to judge by. It does not change.
type Material struct {
	// Pair is the certificate, with what leads to its authority, and the key.
	Pair tls.Certificate
	// Leaf is the node's certificate, and Node the name in it. Leaf is nil before a patient Keeper has found any.
	Leaf *x509.Certificate
	Node string
	// Roots are the authorities and Authorities the same as a list, never empty.
	Roots       *x509.CertPool
	Authorities []*x509.Certificate
}

// Load reads the files and checks that they belong together: the key is that of the
// certificate, the certificate has the name of a node, is good for both ends of a
// connection, and leads to one of the authorities. It does not look at the time:
// Usable does. The key must be nobody else's to read, and the other files nobody
// else's to write.
func Load(open Opener, f Files) (*Material, error) {
	cert, err := read(open, f.Cert, 0o022)
	if err != nil {
		return nil, fmt.Errorf("tls.cert: %w", err)
	}
	key, err := read(open, f.Key, 0o077)
	if err != nil {
		return nil, fmt.Errorf("tls.key: %w", err)
	}
	ca, err := read(open, f.CA, 0o022)
	if err != nil {
		return nil, fmt.Errorf("tls.ca: %w", err)
	}
	m := &Material{Roots: x509.NewCertPool()}
	if m.Authorities, err = authorities(ca); err != nil {
		return nil, fmt.Errorf("tls.ca: %s: %w", f.CA, err)
	}
	for _, a := range m.Authorities {
		m.Roots.AddCert(a)
	}
	if m.Pair, err = tls.X509KeyPair(cert, key); err != nil {
		return nil, fmt.Errorf("tls.cert and tls.key: %s and %s: %w", f.Cert, f.Key, err)
	}
	m.Leaf = m.Pair.Leaf
	if m.Node, err = NameOf(m.Leaf); err != nil {
		return nil, fmt.Errorf("tls.cert: %s: %w", f.Cert, err)
	}
	chain, err := parseChain(m.Pair.Certificate)
	if err != nil {
		return nil, fmt.Errorf("tls.cert: %s: %w", f.Cert, err)
	}
	for _, as := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		err := Verify(chain, m.Roots, as, time.Now())
		var p *Problem
		if errors.As(err, &p) && p.Reason != Expired && p.Reason != NotYetValid {
			return nil, fmt.Errorf("tls.cert: %s: %w", f.Cert, err)
		}
	}
	return m, nil
}

// Usable says why the certificate is not valid at a time, or that it is another
// node's.
func (m *Material) Usable(node string, now time.Time) error {
	if m.Node != node {
		return fmt.Errorf("the certificate is for node %q, but node.name is %q", m.Node, node)
	}
	chain, err := parseChain(m.Pair.Certificate)
	if err != nil {
		return err
	}
	return Verify(chain, m.Roots, x509.ExtKeyUsageClientAuth, now)
}

func parseChain(der [][]byte) ([]*x509.Certificate, error) {
	chain := make([]*x509.Certificate, len(der))
	for i := range der {
		c, err := x509.ParseCertificate(der[i])
		if err != nil {
			return nil, err
		}
		chain[i] = c
	}
	return chain, nil
}

// read reads a file of which nobody else may have the permissions. The check is of
// the file that is read, whatever happens to its name meanwhile.
func read(open Opener, path string, forbidden fs.FileMode) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	perm := info.Mode().Perm()
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case perm&forbidden != 0 && forbidden&0o044 != 0:
		return nil, fmt.Errorf("%s %w %04o: others than its owner can get at the private key; chmod 0600 %s", path, ErrMode, perm, path)
	case perm&forbidden != 0:
		return nil, fmt.Errorf("%s %w %04o: others than its owner can change it; chmod go-w %s", path, ErrMode, perm, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return data, nil
}

var (
	// ErrKeyOnly is returned by Parse and Show for a file that has a private key and no certificate.
	ErrKeyOnly = errors.New("a private key, no certificate")
	// ErrMode is wrapped by errors about who else may use a file.
	ErrMode = errors.New("has mode")
)

// Parse returns the certificates of a PEM file; blocks of other kinds are left out.
func Parse(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	key := false
	for {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			break
		}
		if b.Type != certBlock {
			key = key || strings.HasSuffix(b.Type, keyBlock)
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		certs = append(certs, c)
	}
	switch {
	case len(certs) == 0 && key:
		return nil, ErrKeyOnly
	case len(certs) == 0:
		return nil, errors.New("no certificate in PEM")
	}
	return certs, nil
}

// authorities returns the certificates of a ca file, which must all be authorities: a
// node's certificate among them would be trusted whoever signed it.
func authorities(data []byte) ([]*x509.Certificate, error) {
	certs, err := Parse(data)
	if err != nil {
		return nil, err
	}
	for _, c := range certs {
		if !c.IsCA || !c.BasicConstraintsValid {
			return nil, fmt.Errorf("the certificate of %.100q is not that of an authority", c.Subject.String())
		}
		if c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0 {
			return nil, fmt.Errorf("the authority %.100q may not sign certificates", c.Subject.String())
		}
	}
	return certs, nil
}
