package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/peerproto"
)

// The errors of crypto/tls say what broke; operators need to know which end is to be
// mended. Texts are matched only to explain better: what is refused does not depend
// on them.

// refusedByPeer returns the alert by which the other end ended TLS, or "".
func refusedByPeer(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return op.Err.Error()
	}
	return ""
}

// hungUp reports that the other end closed the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

const withinTime = "a complete handshake within 5s"

// explainDialled explains why TLS with a peer that was dialled did not come about.
func explainDialled(l *link, err error) error {
	var known *refusal
	var plain tls.RecordHeaderError
	alert := refusedByPeer(err)
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &plain):
		return &refusal{reason: "no-tls", came: fmt.Sprintf("an answer without TLS from %s", l.dialled()), expected: `TLS: this node has tls.mode = "required"`,
			remedy: fmt.Sprintf(`node %s has tls.mode = "off", or something else listens there; give both nodes the same tls.mode`, l.name), err: err}
	case alert != "":
		return alerted(l.name, alert, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{reason: "slow", came: fmt.Sprintf("no end of the TLS handshake from %s", l.dialled()), expected: withinTime, remedy: "see whether it is an rdmad with tls.mode = \"required\"", err: err}
	case hungUp(err):
		return &refusal{reason: "closed", came: fmt.Sprintf("%s closed the connection during the TLS handshake", l.dialled()), expected: "TLS",
			remedy: fmt.Sprintf("see whether node %s is an rdmad with tls.mode = \"required\"; its log says why", l.name), err: err}
	}
	return fmt.Errorf("TLS with node %s: %w", l.name, err)
}

// explainAnswer explains why a peer did not answer the hello: with TLS 1.3 it judges
// this node's certificate after this node has finished.
func explainAnswer(l *link, ch *channel, err error) error {
	if alert := refusedByPeer(err); ch.state != nil && alert != "" {
		return alerted(l.name, alert, err)
	}
	if ch.state == nil && hungUp(err) {
		return fmt.Errorf("node %s closed the connection without an answer, which an rdmad that requires TLS or is of another version may do; its log says why: %w", l.name, err)
	}
	return err
}

func alerted(node, alert string, err error) error {
	return &refusal{reason: "refused-by-peer", came: fmt.Sprintf("node %s refuses this node's certificate (%s)", node, alert),
		expected: "to be let in", remedy: "its log and rdmad status there say why, rdmad certs show says what this node has; see rdmad doctor on both", err: err}
}

// explainAccepted explains why TLS with a peer that dialled did not come about. m is
// what it was judged by.
func explainAccepted(node string, m *nodecert.Material, err error) error {
	var known *refusal
	var cert *tls.CertificateVerificationError
	alert, text := refusedByPeer(err), err.Error()
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &cert):
		if problem := nodecert.Verify(cert.UnverifiedCertificates, m.Roots, x509.ExtKeyUsageClientAuth, time.Now()); problem != nil {
			return certRefusal(problem)
		}
	case alert != "":
		return &refusal{reason: "refused-by-peer", came: fmt.Sprintf("the dialling node refuses the certificate of node %s (%s)", node, alert),
			expected: "to be believed", remedy: "its log says why; see rdmad doctor on both", err: err}
	case strings.Contains(text, "provide a certificate"):
		return certRefusal(&nodecert.Problem{Reason: nodecert.Missing, Text: "TLS without a certificate", Remedy: "set tls.cert and tls.key on that node"})
	case strings.Contains(text, "unsupported versions"):
		return &refusal{reason: "tls-version", came: "an older version of TLS", expected: "TLS 1.3", remedy: "connect with rdmad", err: err}
	}
	return explainHello(nil, fmt.Errorf("TLS: %w", err))
}

// explainHello explains why there was no hello, or no ready. ch is nil before TLS.
func explainHello(ch *channel, err error) error {
	alert := refusedByPeer(err)
	switch {
	case ch != nil && alert != "":
		return &refusal{reason: "refused-by-peer", came: "the dialling node ended TLS (" + alert + ")", expected: "its hello", remedy: "its log says why", err: err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{reason: "slow", came: "a connection that did not say who it is", expected: withinTime, remedy: "nothing, if it was not a node: it has been closed", err: err}
	case errors.Is(err, net.ErrClosed):
		return &refusal{reason: "crowded", came: "more connections at once than have room, that did not say who they are", expected: fmt.Sprintf("at most %d", maxWaiting),
			remedy: "see what opens them", err: err}
	case hungUp(err):
		return &refusal{reason: "closed", came: "a connection that was closed before it said who it is", expected: "a hello", remedy: "nothing, if somebody only looked whether the port is open", err: err}
	case errors.Is(err, peerproto.ErrFrame):
		return &refusal{reason: "malformed", came: "something that no rdmad says", expected: "a hello", remedy: "see what else connects to node.listen", err: err}
	case errors.Is(err, errIntake):
		return &refusal{reason: "too-large", came: "more bytes than any handshake has", expected: fmt.Sprintf("at most %d", maxIntake), remedy: "connect with rdmad", err: err}
	}
	return err
}
