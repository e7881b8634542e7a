package peerauth

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/nodecert"
)

// dataGuard judges the data connections of the fabric tcp by what the guard has. It
// implements tcp.Security.
//
// Who may connect has been decided when the session was made: an endpoint waits for
// the node of its session, and for no other. So the list of tls.allow is not asked
// again, and a node that this one has dialled can open its lanes.
type dataGuard struct {
	*Guard
	refused func(from net.Addr, err error)
}

// Data returns what data connections are to be protected by. refused is told why one was not taken. The guard must be Required.
func (g *Guard) Data(refused func(from net.Addr, err error)) tcp.Security {
	return dataGuard{g, refused}
}

// Server implements tcp.Security.
func (g dataGuard) Server() *tls.Config {
	return g.server(g.keeper.Material(), tlsDataProtocol)
}

// Client implements tcp.Security.
func (g dataGuard) Client(node string) *tls.Config {
	return g.client(g.keeper.Material(), node, tlsDataProtocol)
}

// Check implements tcp.Security.
func (g dataGuard) Check(node string, s tls.ConnectionState) error {
	name, err := nodecert.NameOf(s.PeerCertificates[0])
	if err != nil {
		return nameless(err)
	}
	if name != node {
		return &Refusal{Reason: "certificate-name", Came: fmt.Sprintf("a data connection of node %q", name),
			Expected: fmt.Sprintf("one of node %q, with which it was agreed", node), Remedy: "see what that node runs: it knows a token that was not meant for it"}
	}
	return nil
}

// Refused implements tcp.Security.
func (g dataGuard) Refused(from net.Addr, err error) {
	if errors.Is(err, tcp.ErrTooOften) {
		err = ErrTooOften // and nothing is looked at for it
	} else {
		err = explainData(g.node, g.keeper.Material(), err)
	}
	g.refused(from, err)
}

// explainData explains why an incoming data connection was refused. m is what it was
// judged by.
func explainData(node string, m *nodecert.Material, err error) error {
	var known *Refusal
	var plain tls.RecordHeaderError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &plain):
		return &Refusal{Reason: "data-no-tls", Came: "a data connection without TLS", Expected: fmt.Sprintf(`TLS: node %s has tls.data = "tls"`, node),
			Remedy: "give both nodes the same tls.data", Err: err}
	case errors.As(err, &cert):
		if problem := nodecert.Verify(cert.UnverifiedCertificates, m.Roots, x509.ExtKeyUsageClientAuth, time.Now()); problem != nil {
			return certRefusal(problem)
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Refusal{Reason: "data-slow", Came: "a data connection that did not say what it is for", Expected: withinTime,
			Remedy: "nothing, if it was not a node: it has been closed", Err: err}
	}
	return fmt.Errorf("data connection: %w", err)
}
