package daemon

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

// guard is what a node with tls.mode = "required" has to judge peers by.
type guard struct {
	keeper *nodecert.Keeper
}

// tlsProtocol is negotiated for bootstrap connections and tlsDataProtocol for those of
// data, so that nobody's certificate opens a connection that was meant for another
// kind of server, and neither kind can be passed off as the other.
const (
	tlsProtocol     = "rdmad-peer"
	tlsDataProtocol = "rdmad-data"
)

// soon is how long before the end of its certificate a node says so when it starts.
const soon = 30 * 24 * time.Hour

// filesOf are the files of [tls].
func filesOf(cfg *config.Config) nodecert.Files {
	return nodecert.Files{Cert: cfg.TLS.Cert, Key: cfg.TLS.Key, CA: cfg.TLS.CA}
}

// newGuard reads the files of [tls]; nil if the mode is off. again: another core has served, whose attached processes go on
// within the node however the files are; links come back when they can be used.
func newGuard(cfg *config.Config, again bool, log zerolog.Logger) (*guard, error) {
	if cfg.TLS.Mode != config.TLSRequired {
		return nil, nil
	}
	changed := func(m *nodecert.Material, err error) {
		if err != nil {
			event.TLSFiles.On(&log).Err(err).Msg("the files of [tls] cannot be used; what they held before stays in use, if this core has read it, and without it no peer can connect")
			return
		}
		log.Info().Time("not_after", m.Leaf.NotAfter).Str("fingerprint", nodecert.Fingerprint(m.Leaf)).Msg("the files of [tls] have changed; the new certificate is in use")
	}
	k, err := nodecert.NewKeeper(filesOf(cfg), cfg.Node.Name, changed)
	if err != nil && again {
		k, err = nodecert.NewPatientKeeper(filesOf(cfg), cfg.Node.Name, changed), nil
	}
	if err != nil {
		return nil, fmt.Errorf("tls.mode = %q: %w (see: rdmad doctor)", cfg.TLS.Mode, err)
	}
	m := k.Material()
	if m.Leaf == nil {
		return &guard{keeper: k}, nil
	}
	if err := m.Usable(cfg.Node.Name, time.Now()); err != nil {
		event.TLSOwnCertificate.On(&log).Err(err).Msg("peers will refuse this node's certificate")
	} else if time.Until(m.Leaf.NotAfter) < soon {
		event.TLSExpires.On(&log).Time("not_after", m.Leaf.NotAfter).Msg("this node's certificate expires soon; make a new one: " + nodecert.Renewal(cfg.Node.Name))
	}
	return &guard{keeper: k}, nil
}

// warnOfPlainData says that TLS does not reach the data, unless the operator has said
// so.
func (c *conductor) warnOfPlainData() {
	if c.guard != nil && slices.ContainsFunc(c.fabrics, func(f *openFabric) bool { return f.name == tcpName }) && c.cfg.TLS.Data == "" {
		event.TLSDataPlain.On(&c.log).Msg(`tls.mode = "required" protects bootstrap connections only: requests, answers and regions go over TCP unencrypted. ` +
			`Set tls.data = "tls" to encrypt them too. Or use a network you trust or IPsec, and set tls.data = "plain" to say that you know; see docs/security.md`)
	}
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
		return &refusal{reason: "tls-protocol", came: fmt.Sprintf("TLS for the protocol %q", printable.Text(s.NegotiatedProtocol)),
			expected: fmt.Sprintf("%q", protocol), remedy: "connect with rdmad"}
	}
	return nil
}

// server is the configuration of the accepting end. crypto/tls checks the chain of the
// peer before anything of it is looked at; whose it is, admitPeer checks.
func (g *guard) server(m *nodecert.Material, protocol string) *tls.Config {
	t := settings(m, protocol)
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, m.Roots
	t.VerifyConnection = func(s tls.ConnectionState) error { return rightProtocol(s, protocol) }
	return t
}

// client is the configuration of the end that dials the named node. Certificates have
// no host names, so the check of crypto/tls, which wants one, is replaced by one that
// wants the node.
func (g *guard) client(m *nodecert.Material, node, protocol string) *tls.Config {
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
			return &refusal{reason: "certificate-name", came: fmt.Sprintf("the certificate of node %q (%s)", name, nodecert.URI(name)),
				expected: fmt.Sprintf("that of node %q, which was dialled", node),
				remedy:   "correct the address and the name of the [[peer]] and the fabric.advertise of that node, or give it its own certificate"}
		}
		return nil
	}
	return t
}

// errNoCertificate is why there are no connections while the files of [tls] have not been usable since this core started.
var errNoCertificate = errors.New("the files of [tls] of this node cannot be used (see: rdmad doctor)")

// secureOutgoing makes the channel of a connection that this node has dialled.
func (c *conductor) secureOutgoing(ctx context.Context, conn net.Conn, l *link) (*channel, error) {
	if c.guard == nil {
		return &channel{Conn: conn, raw: conn}, nil
	}
	m := c.guard.keeper.Material()
	if m.Leaf == nil {
		return nil, errNoCertificate
	}
	in := newIntake(conn)
	t := tls.Client(in, c.guard.client(m, l.name, tlsProtocol))
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, explainDialled(l, err)
	}
	in.open = true
	state := t.ConnectionState()
	return &channel{Conn: t, raw: conn, state: &state, node: l.name}, nil
}

// recordHandshake is the first byte of a TLS connection. That of a plain one is the
// first of a length below 16 MiB, which is 0.
const recordHandshake = 0x16

// secureIncoming makes the channel of a connection that this node has accepted. A peer
// that is of the other kind, with TLS or without, is told in a frame without TLS:
// either kind can make something of it.
func (c *conductor) secureIncoming(conn net.Conn) (*channel, error) {
	in := newIntake(conn)
	first, err := in.reader.Peek(1)
	if err != nil {
		return nil, explainHello(nil, err)
	}
	secure := first[0] == recordHandshake
	switch {
	case secure && c.guard == nil:
		err := &refusal{reason: "unexpected-tls", came: "a connection with TLS", expected: fmt.Sprintf(`one without: node %s has tls.mode = "off"`, c.node),
			remedy: "give both nodes the same tls.mode"}
		_ = peerproto.Write(conn, &peerproto.Message{Type: peerproto.TypeReject, Reason: err.Error()})
		return nil, err
	case !secure && c.guard != nil:
		return nil, c.refusePlain(conn, in)
	case !secure:
		in.open = true
		return &channel{Conn: in, raw: conn}, nil
	}
	m := c.guard.keeper.Material()
	if m.Leaf == nil {
		return nil, errNoCertificate
	}
	t := tls.Server(in, c.guard.server(m, tlsProtocol))
	if err := t.HandshakeContext(c.ctx); err != nil {
		return nil, explainAccepted(c.node, c.guard.keeper.Material(), err)
	}
	in.open = true
	state := t.ConnectionState()
	ch := &channel{Conn: t, raw: conn, state: &state}
	if ch.node, err = nodecert.NameOf(state.PeerCertificates[0]); err != nil {
		err := nameless(err)
		_ = peerproto.Write(ch, &peerproto.Message{Type: peerproto.TypeReject, Reason: err.Error()})
		return nil, err
	}
	return ch, nil
}

// refusePlain turns away a peer without TLS, and tells it if it is one.
func (c *conductor) refusePlain(conn net.Conn, in *intake) error {
	m, err := peerproto.Read(in, peerproto.MaxHello)
	if err != nil {
		return explainHello(nil, err)
	}
	who := "somebody"
	if m.Hello != nil {
		who = fmt.Sprintf("a node that says it is %q", printable.Text(m.Hello.Node))
	}
	r := &refusal{reason: "no-tls", came: "a connection without TLS, from " + who, expected: fmt.Sprintf(`TLS: node %s has tls.mode = "required"`, c.node),
		remedy: `make a certificate with rdmad certs init and set tls.mode = "required" on both nodes`}
	_ = peerproto.Write(conn, &peerproto.Message{Type: peerproto.TypeReject, Reason: r.Error()})
	return r
}

// admitPeer decides whether the node that a hello claims may connect.
func (c *conductor) admitPeer(node string, ch *channel) error {
	if ch.state != nil && node != ch.node {
		return &refusal{reason: "certificate-name", came: fmt.Sprintf("a hello of node %q with the certificate of node %q", printable.Text(node), ch.node),
			expected: "the same name in both", remedy: "give the node its own certificate, or its node.name the name in the certificate"}
	}
	if c.allLinks()[node] == nil {
		return fmt.Errorf("node %q is not a [[peer]] of node %s", printable.Text(node), c.node)
	}
	if allow := c.live().TLS.Allow; c.guard != nil && len(allow) > 0 && !slices.Contains(allow, node) {
		return &refusal{reason: "not-allowed", came: fmt.Sprintf("node %q", node), expected: fmt.Sprintf("one of tls.allow of node %s", c.node),
			remedy: "add it there and run rdmad reload, if it is to connect"}
	}
	return nil
}

// certRefusal makes a refusal of what nodecert.Verify says.
func certRefusal(err error) error {
	var p *nodecert.Problem
	if !errors.As(err, &p) {
		return err
	}
	return &refusal{reason: string(p.Reason), came: p.Text, expected: "a valid certificate of the cluster's authority", remedy: p.Remedy, err: err}
}

func nameless(err error) error {
	return &refusal{reason: "certificate-name", came: err.Error(), expected: "the certificate of a node", remedy: "make it with rdmad certs init", err: err}
}
