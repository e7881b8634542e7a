package peerauth

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

// Handshake is how long a handshake may take.
const Handshake = 5 * time.Second

var withinTime = fmt.Sprint("a complete handshake within ", Handshake)

// MaxWaiting is how many connections of peers that have not said who they are there may be.
const MaxWaiting = 64

// explainDialled explains why TLS with a peer that was dialled did not come about.
func explainDialled(to Dialled, err error) error {
	var known *Refusal
	var plain tls.RecordHeaderError
	alert := refusedByPeer(err)
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &plain):
		return &Refusal{Reason: "no-tls", Came: fmt.Sprintf("an answer without TLS from %s", to.Address), Expected: `TLS: this node has tls.mode = "required"`,
			Remedy: fmt.Sprintf(`node %s has tls.mode = "off", or something else listens there; give both nodes the same tls.mode`, to.Node), Err: err}
	case alert != "":
		return alerted(to.Node, alert, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Refusal{Reason: "slow", Came: fmt.Sprintf("no end of the TLS handshake from %s", to.Address), Expected: withinTime, Remedy: "see whether it is an rdmad with tls.mode = \"required\"", Err: err}
	case hungUp(err):
		return &Refusal{Reason: "closed", Came: fmt.Sprintf("%s closed the connection during the TLS handshake", to.Address), Expected: "TLS",
			Remedy: fmt.Sprintf("see whether node %s is an rdmad with tls.mode = \"required\"; its log says why", to.Node), Err: err}
	}
	return fmt.Errorf("TLS with node %s: %w", to.Node, err)
}

// ExplainAnswer explains why a peer did not answer the hello: with TLS 1.3 it judges
// this node's certificate after this node has finished.
func ExplainAnswer(node string, ch *Channel, err error) error {
	if alert := refusedByPeer(err); ch.State != nil && alert != "" {
		return alerted(node, alert, err)
	}
	if ch.State == nil && hungUp(err) {
		return fmt.Errorf("node %s closed the connection without an answer, which an rdmad that requires TLS or is of another version may do; its log says why: %w", node, err)
	}
	return err
}

func alerted(node, alert string, err error) error {
	return &Refusal{Reason: "refused-by-peer", Came: fmt.Sprintf("node %s refuses this node's certificate (%s)", node, alert),
		Expected: "to be let in", Remedy: "its log and rdmad status there say why, rdmad certs show says what this node has; see rdmad doctor on both", Err: err}
}

// explainAccepted explains why TLS with a peer that dialled did not come about. m is
// what it was judged by.
func explainAccepted(node string, m *nodecert.Material, err error) error {
	var known *Refusal
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
		return &Refusal{Reason: "refused-by-peer", Came: fmt.Sprintf("the dialling node refuses the certificate of node %s (%s)", node, alert),
			Expected: "to be believed", Remedy: "its log says why; see rdmad doctor on both", Err: err}
	case strings.Contains(text, "provide a certificate"):
		return certRefusal(&nodecert.Problem{Reason: nodecert.Missing, Text: "TLS without a certificate", Remedy: "set tls.cert and tls.key on that node"})
	case strings.Contains(text, "unsupported versions"):
		return &Refusal{Reason: "tls-version", Came: "an older version of TLS", Expected: "TLS 1.3", Remedy: "connect with rdmad", Err: err}
	}
	return ExplainHello(nil, fmt.Errorf("TLS: %w", err))
}

// ExplainHello explains why there was no hello, or no ready. ch is nil before TLS.
func ExplainHello(ch *Channel, err error) error {
	alert := refusedByPeer(err)
	switch {
	case ch != nil && alert != "":
		return &Refusal{Reason: "refused-by-peer", Came: "the dialling node ended TLS (" + alert + ")", Expected: "its hello", Remedy: "its log says why", Err: err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &Refusal{Reason: "slow", Came: "a connection that did not say who it is", Expected: withinTime, Remedy: "nothing, if it was not a node: it has been closed", Err: err}
	case errors.Is(err, net.ErrClosed):
		return &Refusal{Reason: "crowded", Came: "more connections at once than have room, that did not say who they are", Expected: fmt.Sprintf("at most %d", MaxWaiting),
			Remedy: "see what opens them", Err: err}
	case hungUp(err):
		return &Refusal{Reason: "closed", Came: "a connection that was closed before it said who it is", Expected: "a hello", Remedy: "nothing, if somebody only looked whether the port is open", Err: err}
	case errors.Is(err, peerproto.ErrFrame):
		return &Refusal{Reason: "malformed", Came: "something that no rdmad says", Expected: "a hello", Remedy: "see what else connects to node.listen", Err: err}
	case errors.Is(err, errIntake):
		return &Refusal{Reason: "too-large", Came: "more bytes than any handshake has", Expected: fmt.Sprintf("at most %d", maxIntake), Remedy: "connect with rdmad", Err: err}
	}
	return err
}
