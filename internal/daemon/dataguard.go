package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/nodecert"
)

// dataGuard judges the data connections of the fabric tcp by what the guard has. It
// implements tcp.Security.
//
// Who may connect has been decided when the session was made: an endpoint waits for
// the node of its session, and for no other. So the list of tls.allow is not asked
// again, and a node that this one has dialled can open its lanes.
type dataGuard struct{ conductor *conductor }

// dataSecurity returns what data connections are to be protected by; nil: nothing.
func (c *conductor) dataSecurity() tcp.Security {
	if c.guard == nil || c.cfg.TLS.Data != config.TLSDataTLS {
		return nil
	}
	return dataGuard{c}
}

// Server implements tcp.Security.
func (g dataGuard) Server() *tls.Config {
	k := g.conductor.guard
	return k.server(k.keeper.Material(), tlsDataProtocol)
}

// Client implements tcp.Security.
func (g dataGuard) Client(node string) *tls.Config {
	k := g.conductor.guard
	return k.client(k.keeper.Material(), node, tlsDataProtocol)
}

// Check implements tcp.Security.
func (g dataGuard) Check(node string, s tls.ConnectionState) error {
	name, err := nodecert.NameOf(s.PeerCertificates[0])
	if err != nil {
		return nameless(err)
	}
	if name != node {
		return &refusal{reason: "certificate-name", came: fmt.Sprintf("a data connection of node %q", name),
			expected: fmt.Sprintf("one of node %q, with which it was agreed", node), remedy: "see what that node runs: it knows a token that was not meant for it"}
	}
	return nil
}

// Refused implements tcp.Security.
func (g dataGuard) Refused(from net.Addr, err error) {
	if errors.Is(err, tcp.ErrTooOften) {
		err = errTooOften // and nothing is looked at for it
	} else {
		err = explainData(g.conductor.node, g.conductor.guard.keeper.Material(), err)
	}
	g.conductor.note(from, "data connection refused", err)
}

// explainData explains why an incoming data connection was refused. m is what it was
// judged by.
func explainData(node string, m *nodecert.Material, err error) error {
	var known *refusal
	var plain tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &plain):
		return &refusal{reason: "data-no-tls", came: "a data connection without TLS", expected: fmt.Sprintf(`TLS: node %s has tls.data = "tls"`, node),
			remedy: "give both nodes the same tls.data", err: err}
	case errors.As(err, &cert):
		if problem := nodecert.Verify(cert.UnverifiedCertificates, m.Roots, x509.ExtKeyUsageClientAuth, time.Now()); problem != nil {
			return certRefusal(problem)
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{reason: "data-slow", came: "a data connection that did not say what it is for", expected: withinTime,
			remedy: "nothing, if it was not a node: it has been closed", err: err}
	}
	return fmt.Errorf("data connection: %w", err)
}
