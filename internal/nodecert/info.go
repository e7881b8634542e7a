package nodecert

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"time"
)

// Info describes a certificate.
type Info struct {
	File string `json:"file"`
	// Node is the node that it is for; empty if Authority is true, or if it is for
	// none.
	Node string `json:"node"`
	// Names are all names in it.
	Names     []string  `json:"names"`
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Authority bool      `json:"authority"`
	From      time.Time `json:"not_before"`
	Until     time.Time `json:"not_after"`
	// Fingerprint is the SHA-256 of the certificate.
	Fingerprint string `json:"fingerprint"`
}

// Show describes the certificates of a PEM file.
func Show(path string) ([]Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	var certs []*x509.Certificate
	if err == nil {
		certs, err = Parse(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	list := make([]Info, len(certs))
	for i, c := range certs {
		list[i] = describe(path, c)
	}
	return list, nil
}

func describe(path string, c *x509.Certificate) Info {
	i := Info{
		File: path, Names: []string{}, Subject: c.Subject.String(), Issuer: c.Issuer.String(), Authority: c.IsCA,
		From: c.NotBefore.UTC(), Until: c.NotAfter.UTC(), Fingerprint: Fingerprint(c),
	}
	if node, err := NameOf(c); err == nil && !c.IsCA {
		i.Node = node
	}
	for _, u := range c.URIs {
		i.Names = append(i.Names, u.String())
	}
	i.Names = append(append(i.Names, c.DNSNames...), c.EmailAddresses...)
	for _, ip := range c.IPAddresses {
		i.Names = append(i.Names, ip.String())
	}
	return i
}
