package daemon_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/shm"
)

// pair makes a certificate of the cluster that is in no file.
func (c *cluster) pair(t *testing.T, r nodecert.Request) []tls.Certificate {
	t.Helper()
	if r.Until.IsZero() {
		r.Until = time.Now().Add(time.Hour)
	}
	cert, key, err := c.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

// stranger is the TLS of a peer with the given certificate, which it shows whatever
// is asked for, and which believes everybody.
func stranger(certs []tls.Certificate) *tls.Config {
	t := &tls.Config{InsecureSkipVerify: true, Certificates: certs, NextProtos: []string{"rdmad-peer"}}
	if len(certs) > 0 {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
	}
	return t
}

func helloFrame(t *testing.T, node string) []byte {
	t.Helper()
	data, err := json.Marshal(frame{"type": "hello", "hello": frame{
		"magic": "rdmad-peer", "protocol": 4, "abi": shm.ABIVersion, "node": node, "incarnation": "stranger", "fabrics": []string{"tcp"}, "now": shm.Nanotime(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// greet says hello to a node by TLS, as another node, and returns the type and reason
// of its answer, or the error.
func greet(t *testing.T, n *daemontest.Node, conf *tls.Config, as string) (string, string, error) {
	t.Helper()
	raw, err := net.Dial("tcp", statusOf(t, n).Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, conf)
	if err := conn.Handshake(); err != nil {
		return "", "", err
	}
	_, _ = conn.Write(helloFrame(t, as)) // an alert may be there already
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return "", "", err
	}
	data := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(conn, data); err != nil {
		return "", "", err
	}
	var m struct{ Type, Reason string }
	err = json.Unmarshal(data, &m)
	return m.Type, m.Reason, err
}

// badRequests are certificates for b that its peer must refuse, with the reasons.
func badRequests() map[string]nodecert.Request {
	now := time.Now()
	return map[string]nodecert.Request{
		"certificate-expired":       {Node: "b", From: now.Add(-2 * time.Hour), Until: now.Add(-time.Hour)},
		"certificate-not-yet-valid": {Node: "b", From: now.Add(time.Hour / 2)},
		"certificate-name":          {Node: "c"},
		"certificate-invalid":       {Node: "b", URIs: []*url.URL{{Scheme: "rdmad", Host: "elsewhere", Path: "/b"}}},
	}
}

// What a node says to peers that dial it with all kinds of certificates.
func TestCertificatesOfDiallers(t *testing.T) {
	c, a, b := secured(t)
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	rejected := func(name, reason string, certs []tls.Certificate, words ...string) {
		t.Helper()
		kind, text, err := greet(t, a, stranger(certs), "b")
		if err == nil && kind != "reject" {
			t.Errorf("%s: the answer is %q", name, kind)
		}
		if err == nil && hasWords(text, words) != nil {
			t.Errorf("%s: %q", name, text)
		}
		refused(t, a, reason, words...)
	}
	for reason, r := range badRequests() {
		rejected(reason, reason, c.pair(t, r))
	}
	rejected("name", "certificate-name", c.pair(t, nodecert.Request{Node: "c"}), `hello of node "b"`, `certificate of node "c"`)
	rejected("no certificate", "certificate-missing", nil, "without a certificate", "tls.cert")
	rejected("wrong authority", "certificate-wrong-authority", newCluster(t).pair(t, nodecert.Request{Node: "b"}), "no authority of tls.ca", "ca.pem")
	rejected("server only", "certificate-wrong-usage", c.pair(t, nodecert.Request{Node: "b", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), "clientAuth")
	old := stranger(c.pair(t, nodecert.Request{Node: "b"}))
	old.MaxVersion = tls.VersionTLS12
	if _, _, err := greet(t, a, old, "b"); err == nil {
		t.Error("TLS 1.2 is accepted")
	}
	refused(t, a, "tls-version", "TLS 1.3")
	web := stranger(c.pair(t, nodecert.Request{Node: "b"}))
	web.NextProtos = nil
	if _, _, err := greet(t, a, web, "b"); err == nil {
		t.Error("another protocol is accepted")
	}
	refused(t, a, "tls-protocol")
	// After all these, who has the right one is taken.
	if kind, reason, err := greet(t, a, stranger(c.pair(t, nodecert.Request{Node: "b"})), "b"); err != nil || kind != "hello" {
		t.Errorf("the right certificate: %q %q %v", kind, reason, err)
	}
	if err := errors.Join(b.Start(), a.Connected("b")); err != nil {
		t.Fatal(err)
	}
	if n := statusOf(t, a).Counters["refused_connections"]; n < 10 {
		t.Errorf("%d refusals are counted", n)
	}
}

// What a node makes of peers that it dials.
func TestCertificatesOfListeners(t *testing.T) {
	c, a, b := secured(t)
	address := statusOf(t, b).Listen
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conf := make(chan *tls.Config, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		var now *tls.Config
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case now = <-conf:
			default:
			}
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			if now != nil {
				_ = tls.Server(conn, now).Handshake()
			}
			_ = conn.Close()
		}
	}()
	defer func() {
		_ = l.Close()
		<-over
		if err := errors.Join(b.Start(), a.Connected("b")); err != nil {
			t.Error(err)
		}
	}()
	try := func(certs []tls.Certificate, words ...string) {
		t.Helper()
		s := stranger(certs)
		s.ClientAuth = tls.RequireAnyClientCert
		conf <- s
		failed(t, a, words...)
	}
	requests := badRequests()
	try(c.pair(t, requests["certificate-expired"]), "expired on", "rdmad certs init")
	try(c.pair(t, requests["certificate-not-yet-valid"]), "is not valid before", "clocks")
	try(c.pair(t, requests["certificate-name"]), `the certificate of node "c"`, `that of node "b"`)
	try(newCluster(t).pair(t, nodecert.Request{Node: "b"}), "no authority of tls.ca")
	try(c.pair(t, nodecert.Request{Node: "b", Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}), "the accepting end")
	old := stranger(c.pair(t, nodecert.Request{Node: "b"}))
	old.MaxVersion = tls.VersionTLS12
	conf <- old
	failed(t, a, "version")
}

// Connections that say nothing, or next to nothing, are closed in time, and others
// connect meanwhile, however many they are.
func TestSlowConnections(t *testing.T) {
	c, a, b := secured(t)
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	listen := statusOf(t, a).Listen
	start := time.Now()
	const slow = 80 // more than are let in at once
	ended := make(chan error, slow)
	for i := range slow {
		conn, err := net.Dial("tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() { ended <- drip(conn, i) }()
	}
	if kind, _, err := greet(t, a, stranger(c.pair(t, nodecert.Request{Node: "b"})), "b"); err != nil || kind != "hello" {
		t.Errorf("meanwhile: %q, %v", kind, err)
	}
	if err := errors.Join(b.Start(), b.Connected("a")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Logf("the honest node took %v", took) // a slow machine; the rest holds anyway
	}
	for range slow {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	refused(t, a, "crowded", "64")
	refused(t, a, "slow", "5s")
}

// drip sends the beginning of a TLS connection, a byte a second, or nothing at all,
// until the other side closes.
func drip(conn net.Conn, i int) error {
	limit := time.Now().Add(2 * time.Minute)
	if err := conn.SetReadDeadline(limit); err != nil {
		return err
	}
	closed := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			closed <- fmt.Errorf("connection %d: not closed: %w", i, err)
			return
		}
		closed <- nil
	}()
	bytes := []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for _, b := range bytes {
		if i%3 > 0 {
			_, _ = conn.Write([]byte{b})
		}
		select {
		case err := <-closed:
			return err
		case <-tick.C:
		}
	}
	return <-closed
}

// A host that connects again and again in vain is closed out before any work is done for
// it, and another one is not.
func TestTooManyInVain(t *testing.T) {
	_, a, b := secured(t)
	if err := b.Halt(); err != nil {
		t.Fatal(err)
	}
	listen := statusOf(t, a).Listen
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	daemontest.Eventually(t, "a bound", func() error {
		for range 50 {
			conn, err := from.Dial("tcp", listen)
			if err != nil {
				return err
			}
			if err := conn.Close(); err != nil {
				return err
			}
		}
		for _, r := range statusOf(t, a).Refusals {
			if r.Reason == "too-often" && r.From == "127.0.0.2" {
				return nil
			}
		}
		return errors.New("none yet")
	})
	if err := errors.Join(b.Start(), b.Connected("a"), a.Connected("b")); err != nil {
		t.Fatal(err)
	}
}
