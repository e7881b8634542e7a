package peerauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/internal/printable"
)

// Guard secures a node's connections to its peers. Its methods are safe for concurrent use.
type Guard struct {
	node string
	// keeper has what tls.mode = "required" asks for; nil without it.
	keeper *nodecert.Keeper
	judge  *judge
}

// tlsProtocol is negotiated for bootstrap connections and tlsDataProtocol for those of
// data, so that nobody's certificate opens a connection that was meant for another
// kind of server, and neither kind can be passed off as the other.
const (
	tlsProtocol     = "rdmad-peer"
	tlsDataProtocol = "rdmad-data"
)

// NewGuard reads the files of [tls], unless the mode is off, and follows their changes. again: another core has served, whose
// attached processes go on within the node however the files are; links come back when they can be used.
func NewGuard(cfg *config.Config, again bool, log zerolog.Logger) (*Guard, error) {
	if cfg.TLS.Mode != config.TLSRequired {
		return &Guard{node: cfg.Node.Name}, nil
	}
	j := newJudge(cfg.Node.Name, log)
	changed := func(m *nodecert.Material, err error) {
		if err != nil {
			event.TLSFiles.On(&log).Err(err).Msg("the files of [tls] cannot be used; what they held before stays in use, if this core has read it, and without it no peer can connect")
			return
		}
		log.Info().Time("not_after", m.Leaf.NotAfter).Str("fingerprint", nodecert.Fingerprint(m.Leaf)).Msg("the files of [tls] have changed; the new certificate is in use")
		j.renew()
	}
	files := nodecert.Files{Cert: cfg.TLS.Cert, Key: cfg.TLS.Key, CA: cfg.TLS.CA}
	k, err := nodecert.NewKeeper(files, cfg.Node.Name, changed)
	if err != nil && again {
		k, err = nodecert.NewPatientKeeper(files, cfg.Node.Name, changed), nil
	}
	if err != nil {
		return nil, fmt.Errorf("tls.mode = %q: %w (see: rdmad doctor)", cfg.TLS.Mode, err)
	}
	j.look(k.Material(), time.Now())
	return &Guard{node: cfg.Node.Name, keeper: k, judge: j}, nil
}

// Required reports whether peers must have certificates; nobody must without a guard.
func (g *Guard) Required() bool { return g != nil && g.keeper != nil }

// Certificate returns this node's; nil without one, or while the files of [tls] cannot be used.
func (g *Guard) Certificate() *x509.Certificate {
	if !g.Required() {
		return nil
	}
	return g.keeper.Material().Leaf
}

// settings are what both ends of TLS have in common. Nothing is resumed: every
// connection shows its certificates, and what the files say now is what counts.
func settings(m *nodecert.Material, protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, MaxVersion: tls.VersionTLS13,
		NextProtos: []string{protocol}, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{m.Pair},
	}
}

// rightProtocol refuses a connection that was not meant for a daemon, or for another
// use.
func rightProtocol(s tls.ConnectionState, protocol string) error {
	if s.NegotiatedProtocol != protocol {
		return &Refusal{Reason: "tls-protocol", Came: fmt.Sprintf("TLS for the protocol %q", printable.Text(s.NegotiatedProtocol)),
			Expected: fmt.Sprintf("%q", protocol), Remedy: "connect with rdmad"}
	}
	return nil
}

// server is the configuration of the accepting end. crypto/tls checks the chain of the
// peer before anything of it is looked at; whose it is, Claims checks.
func (g *Guard) server(m *nodecert.Material, protocol string) *tls.Config {
	t := settings(m, protocol)
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, m.Roots
	t.VerifyConnection = func(s tls.ConnectionState) error { return rightProtocol(s, protocol) }
	return t
}

// client is the configuration of the end that dials the named node. Certificates have
// no host names, so the check of crypto/tls, which wants one, is replaced by one that
// wants the node.
func (g *Guard) client(m *nodecert.Material, node, protocol string) *tls.Config {
	t := settings(m, protocol)
	// Also if the peer says that it does not know the authority: it is then refused
	// for what it is, and not for being missing.
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.Pair, nil }
	t.InsecureSkipVerify = true
	t.VerifyConnection = func(s tls.ConnectionState) error {
		if err := rightProtocol(s, protocol); err != nil {
			return err
		}
		if err := nodecert.Verify(s.PeerCertificates, m.Roots, x509.ExtKeyUsageServerAuth, time.Now()); err != nil {
			return certRefusal(err)
		}
		name, err := nodecert.NameOf(s.PeerCertificates[0])
		if err != nil {
			return nameless(err)
		}
		if name != node {
			return &Refusal{Reason: "certificate-name", Came: fmt.Sprintf("the certificate of node %q (%s)", name, nodecert.URI(name)),
				Expected: fmt.Sprintf("that of node %q, which was dialled", node),
				Remedy:   "correct the address and the name of the [[peer]] and the fabric.advertise of that node, or give it its own certificate"}
		}
		return nil
	}
	return t
}

// errNoCertificate is why there are no connections while the files of [tls] have not been usable since this core started.
var errNoCertificate = errors.New("the files of [tls] of this node cannot be used (see: rdmad doctor)")

// Dialled is a peer that this node has dialled.
type Dialled struct {
	// Node is what the configuration calls it, Address where.
	Node, Address string
}

// Outgoing makes the channel of a connection that this node has dialled; it is at its peer's hello then. The caller closes
// conn in any case.
func (g *Guard) Outgoing(ctx context.Context, conn net.Conn, to Dialled) (*Channel, error) {
	if !g.Required() {
		return &Channel{Conn: conn, Raw: conn}, nil
	}
	m := g.keeper.Material()
	if m.Leaf == nil {
		return nil, errNoCertificate
	}
	in := newIntake(conn)
	t := tls.Client(in, g.client(m, to.Node, tlsProtocol))
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, explainDialled(to, err)
	}
	in.open = true
	state := t.ConnectionState()
	return &Channel{Conn: t, Raw: conn, State: &state, Node: to.Node}, nil
}

// recordHandshake is the first byte of a TLS connection. That of a plain one is the
// first of a length below 16 MiB, which is 0.
const recordHandshake = 0x16

// Incoming makes the channel of a connection that this node has accepted. A peer
// that is of the other kind, with TLS or without, is told in a frame without TLS:
// either kind can make something of it. The caller closes conn in any case.
func (g *Guard) Incoming(ctx context.Context, conn net.Conn) (*Channel, error) {
	in := newIntake(conn)
	first, err := in.reader.Peek(1)
	if err != nil {
		return nil, ExplainHello(nil, err)
	}
	secure := first[0] == recordHandshake
	switch {
	case secure && !g.Required():
		err := &Refusal{Reason: "unexpected-tls", Came: "a connection with TLS", Expected: fmt.Sprintf(`one without: node %s has tls.mode = "off"`, g.node),
			Remedy: "give both nodes the same tls.mode"}
		_ = peerproto.Write(conn, &peerproto.Message{Type: peerproto.TypeReject, Reason: err.Error()})
		return nil, err
	case !secure && g.Required():
		return nil, g.refusePlain(conn, in)
	case !secure:
		in.open = true
		return &Channel{Conn: in, Raw: conn}, nil
	}
	m := g.keeper.Material()
	if m.Leaf == nil {
		return nil, errNoCertificate
	}
	t := tls.Server(in, g.server(m, tlsProtocol))
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, explainAccepted(g.node, g.keeper.Material(), err)
	}
	in.open = true
	state := t.ConnectionState()
	ch := &Channel{Conn: t, Raw: conn, State: &state}
	if ch.Node, err = nodecert.NameOf(state.PeerCertificates[0]); err != nil {
		err := nameless(err)
		_ = peerproto.Write(ch, &peerproto.Message{Type: peerproto.TypeReject, Reason: err.Error()})
		return nil, err
	}
	return ch, nil
}

// refusePlain turns away a peer without TLS, and tells it if it is one.
func (g *Guard) refusePlain(conn net.Conn, in *intake) error {
	m, err := peerproto.Read(in, peerproto.MaxHello)
	if err != nil {
		return ExplainHello(nil, err)
	}
	who := "somebody"
	if m.Hello != nil {
		who = fmt.Sprintf("a node that says it is %q", printable.Text(m.Hello.Node))
	}
	r := &Refusal{Reason: "no-tls", Came: "a connection without TLS, from " + who, Expected: fmt.Sprintf(`TLS: node %s has tls.mode = "required"`, g.node),
		Remedy: `make a certificate with rdmad certs init and set tls.mode = "required" on both nodes`}
	_ = peerproto.Write(conn, &peerproto.Message{Type: peerproto.TypeReject, Reason: r.Error()})
	return r
}

// Claims checks the name that the other end of a channel gives itself in its hello against its certificate.
func (ch *Channel) Claims(node string) error {
	if ch.State != nil && node != ch.Node {
		return &Refusal{Reason: "certificate-name", Came: fmt.Sprintf("a hello of node %q with the certificate of node %q", printable.Text(node), ch.Node),
			Expected: "the same name in both", Remedy: "give the node its own certificate, or its node.name the name in the certificate"}
	}
	return nil
}

// Allowed checks a node that has shown who it is against tls.allow, as it is now; without TLS, or without a list, every node is allowed.
func (g *Guard) Allowed(node string, allow []string) error {
	if g.Required() && len(allow) > 0 && !slices.Contains(allow, node) {
		return &Refusal{Reason: "not-allowed", Came: fmt.Sprintf("node %q", node), Expected: fmt.Sprintf("one of tls.allow of node %s", g.node),
			Remedy: "add it there and run rdmad reload, if it is to connect"}
	}
	return nil
}

// certRefusal makes a refusal of what nodecert.Verify says.
func certRefusal(err error) error {
	var p *nodecert.Problem
	if !errors.As(err, &p) {
		return err
	}
	return &Refusal{Reason: string(p.Reason), Came: p.Text, Expected: "a valid certificate of the cluster's authority", Remedy: p.Remedy, Err: err}
}

func nameless(err error) error {
	return &Refusal{Reason: "certificate-name", Came: err.Error(), Expected: "the certificate of a node", Remedy: "make it with rdmad certs init", Err: err}
}
