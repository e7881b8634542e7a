package nodecert

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Reason is why a certificate is refused.
type Reason string

const (
	// Expired and NotYetValid are about the time.
	Expired     Reason = "certificate-expired"
	NotYetValid Reason = "certificate-not-yet-valid"
	// WrongAuthority: it does not lead to an authority of the ca file.
	WrongAuthority Reason = "certificate-wrong-authority"
	// WrongUsage: it is not made for this end of a connection.
	WrongUsage Reason = "certificate-wrong-usage"
	// Missing: there is none.
	Missing Reason = "certificate-missing"
	// Invalid is everything else.
	Invalid Reason = "certificate-invalid"
)

// Problem is the refusal of a certificate. Its text does not change while the
// certificate and the judgement stay the same, so that it can be logged once.
type Problem struct {
	Reason Reason
	// Text says what is wrong, and Remedy what to do about it.
	Text, Remedy string
}

// Error returns the text with the remedy.
func (p *Problem) Error() string { return p.Text + " (" + p.Remedy + ")" }

// day is how dates are written.
const day = "2006-01-02 15:04 MST"

const renew = "make a new one: rdmad certs init --dir DIR --force NODE; rdmad certs show tells what is there"

// Renewal is how to make a node a new certificate, for people.
func Renewal(node string) string {
	return "rdmad certs init --dir DIR --force " + node + ", where DIR has the authority's ca-key.pem; then copy the node's two files here"
}

// Verify checks that a chain, which begins with the certificate in question, leads
// to one of the roots, may be used as asked, and is valid at the time. The error is a
// *Problem.
func Verify(chain []*x509.Certificate, roots *x509.CertPool, as x509.ExtKeyUsage, now time.Time) error {
	if len(chain) == 0 {
		return &Problem{Missing, "there is no certificate", "set tls.mode, tls.cert and tls.key on that node"}
	}
	leaf := chain[0]
	rest := x509.NewCertPool()
	for _, c := range chain[1:] {
		rest.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: rest, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{as}})
	if err == nil {
		return nil
	}
	who := fmt.Sprintf("the certificate of %.100q", leaf.Subject.String())
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case now.After(leaf.NotAfter):
		return &Problem{Expired, fmt.Sprintf("%s expired on %s", who, leaf.NotAfter.UTC().Format(day)), renew}
	case now.Before(leaf.NotBefore):
		return &Problem{NotYetValid, fmt.Sprintf("%s is not valid before %s", who, leaf.NotBefore.UTC().Format(day)), "compare the clocks of the nodes, or " + renew}
	case errors.As(err, &unknown):
		return &Problem{WrongAuthority, fmt.Sprintf("%s was signed by %.100q, which is no authority of tls.ca here", who, leaf.Issuer.String()),
			"give both nodes certificates and the ca.pem of one authority"}
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return &Problem{WrongUsage, fmt.Sprintf("%s is not made for %s", who, usageText(as)), "a node's certificate needs the extended key usages serverAuth and clientAuth; " + renew}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		// Not the leaf's time, so an authority's.
		return &Problem{Expired, fmt.Sprintf("the authority %.100q is not valid at this time", leaf.Issuer.String()), "make a new authority in another directory: rdmad certs init"}
	}
	return &Problem{Invalid, fmt.Sprintf("%s is not valid: %.200q", who, err.Error()), renew}
}

func usageText(u x509.ExtKeyUsage) string {
	if u == x509.ExtKeyUsageServerAuth {
		return "the accepting end of a connection"
	}
	return "the dialling end of a connection"
}
