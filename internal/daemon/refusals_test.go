package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
	"github.com/rdmad/rdmad/internal/fabrics"
	"github.com/rdmad/rdmad/internal/nodecert"
	"github.com/rdmad/rdmad/internal/peerauth"
)

// from is a connection of which only the address and the end matter.
type from struct {
	net.Conn
	host   string
	closed bool
}

func (f *from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.host), Port: 7} }
func (f *from) Close() error         { f.closed = true; return nil }

// A refusal is logged once for each reason and host, with what to do, and again after
// a connection from there was taken.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	c := &conductor{log: zerolog.New(&log), ctx: context.Background()}
	lines := func() int { return strings.Count(log.String(), "\n") }
	noTLS := &peerauth.Refusal{Reason: "no-tls", Came: "something", Expected: "something else", Remedy: "this", Err: io.EOF}
	refuse := func(host string, err error, want int) {
		t.Helper()
		conn := &from{host: host}
		c.refuse(conn, err)
		if lines() != want || !conn.closed {
			t.Errorf("%d lines, want %d; closed: %v\n%s", lines(), want, conn.closed, log.String())
		}
	}
	refuse("192.0.2.1", noTLS, 1)
	for _, want := range []string{"192.0.2.1:7", "no-tls", "something; expected something else; what to do: this"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in %s", want, log.String())
		}
	}
	refuse("192.0.2.1", noTLS, 1)
	refuse("192.0.2.1", fmt.Errorf("wrapped: %w", noTLS), 1)
	refuse("192.0.2.2", noTLS, 2)
	refuse("192.0.2.1", errors.New("control \x1b and more"), 3)
	if strings.Contains(log.String(), "u001b") {
		t.Errorf("a control character in %s", log.String())
	}
	c.refusals.Forget("192.0.2.1")
	refuse("192.0.2.1", noTLS, 4)
	if n := c.counts().RefusedConnections; n != 6 {
		t.Errorf("%d are counted", n)
	}
}

// required is a guard with a certificate.
func required(t *testing.T) *peerauth.Guard {
	t.Helper()
	authority, err := nodecert.NewAuthority("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ca, _, err := authority.PEM()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := authority.Issue(nodecert.Request{Node: "a", Until: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cfg := &config.Config{Node: config.Node{Name: "a"}, TLS: config.TLS{Mode: config.TLSRequired,
		Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}}
	for file, data := range map[string][]byte{cfg.TLS.Cert: cert, cfg.TLS.Key: key, cfg.TLS.CA: ca} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g, err := peerauth.NewGuard(cfg, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// That TLS does not reach the data is said, unless it does not matter or is known.
func TestWarningOfPlainData(t *testing.T) {
	guard := required(t)
	for _, test := range []struct {
		guard          *peerauth.Guard
		provider, data string
		warns          bool
	}{
		{guard, tcp.Name, "", true}, {guard, tcp.Name, "plain", false}, {guard, "verbs", "", false}, {new(peerauth.Guard), tcp.Name, "", false},
	} {
		var log bytes.Buffer
		c := &conductor{log: zerolog.New(&log), cfg: &config.Config{TLS: config.TLS{Data: test.data}}, guard: test.guard, fabrics: []*fabrics.Fabric{{Name: test.provider}}}
		c.warnOfPlainData()
		if got := strings.Contains(log.String(), "docs/security.md"); got != test.warns {
			t.Errorf("%+v: %q", test, log.String())
		}
	}
}
