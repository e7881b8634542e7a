package nodecert

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

const (
	scheme = "rdmad"
	// host is the host of every name: the authorities made here may certify no other.
	host = "node"
)

// nameExpr is what a node may be called; the configuration has the same rule.
var nameExpr = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// CheckName says what is wrong with the name of a node.
func CheckName(node string) error {
	if !nameExpr.MatchString(node) {
		return fmt.Errorf("%.80q is not the name of a node: 1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit", node)
	}
	return nil
}

// URI returns the name of a node as its certificate has it.
func URI(node string) *url.URL { return &url.URL{Scheme: scheme, Host: host, Path: "/" + node} }

// NameOf returns the node that a certificate is for. A certificate with no such name,
// or with several, is for nobody.
func NameOf(cert *x509.Certificate) (string, error) {
	var names []string
	for _, u := range cert.URIs {
		if u.Scheme != scheme {
			continue
		}
		node := strings.TrimPrefix(u.Path, "/")
		// Whatever else a URI can have, a name has not.
		if CheckName(node) != nil || u.String() != URI(node).String() {
			return "", fmt.Errorf("the certificate has the malformed name %.100q, not %s", u.String(), URI("NODE"))
		}
		names = append(names, node)
	}
	if len(names) != 1 {
		return "", fmt.Errorf("the certificate has %d names of the form %s, not one", len(names), URI("NODE"))
	}
	return names[0], nil
}
