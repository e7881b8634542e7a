package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/rdmad/rdmad/internal/config"
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
	noTLS := &refusal{reason: "no-tls", came: "something", expected: "something else", remedy: "this", err: io.EOF}
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
	c.refusals.forget("192.0.2.1")
	refuse("192.0.2.1", noTLS, 4)
	// However many there are, they take a bounded amount of memory.
	for i := range 10 * maxRefusals {
		c.refuse(&from{host: "192.0.2.3"}, fmt.Errorf("reason %d %s", i, strings.Repeat("x", 2*maxRefusalText)))
	}
	st := c.refusals.status()
	if len(st) != maxRefusals || len(st[0].Text) != maxRefusalText || len(st[0].Reason) != maxReason || st[0].AgeS > st[maxRefusals-1].AgeS {
		t.Errorf("%d refusals, the first %+v", len(st), st[0])
	}
	if n := c.counts().RefusedConnections; n != 6+10*maxRefusals {
		t.Errorf("%d are counted", n)
	}
}

// A host that fills the lobby loses its own connections.
func TestLobby(t *testing.T) {
	var l lobby
	quiet := &from{host: "192.0.2.1"}
	l.enter(quiet, "one", maxWaiting)
	var many []*from
	for range 3 * maxWaiting {
		conn := &from{host: "192.0.2.2"}
		many = append(many, conn)
		l.enter(conn, "many", maxWaiting)
	}
	if quiet.closed || len(l.waiting) != maxWaiting {
		t.Errorf("closed: %v, %d wait", quiet.closed, len(l.waiting))
	}
	for i, conn := range many {
		if left := i >= 3*maxWaiting-(maxWaiting-1); conn.closed == left {
			t.Errorf("connection %d: closed: %v", i, conn.closed)
		}
	}
	l.leave(quiet)
	l.leave(quiet)
	l.leave(many[0])
	if len(l.waiting) != maxWaiting-1 {
		t.Errorf("%d wait", len(l.waiting))
	}
}

// So does one that has many addresses, of which all are in its network.
func TestLobbyAndManyAddresses(t *testing.T) {
	var l lobby
	quiet := &from{host: "2001:db8:1::1"}
	l.enter(quiet, quiet.host, maxWaiting)
	for i := range 3 * maxWaiting {
		host := fmt.Sprintf("2001:db8:2::%x", i)
		l.enter(&from{host: host}, host, maxWaiting)
	}
	if quiet.closed {
		t.Error("another host is pushed out")
	}
}

// Before the handshake is over a peer cannot send without end.
func TestIntake(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_, _ = client.Write(make([]byte, 2*maxIntake))
		_ = client.Close()
	}()
	in := newIntake(server)
	n, err := io.Copy(io.Discard, in)
	if n != maxIntake || !errors.Is(err, errIntake) {
		t.Errorf("%d bytes, %v", n, err)
	}
	in.open = true
	if n, err := io.Copy(io.Discard, in); n != maxIntake || err != nil {
		t.Errorf("afterwards %d bytes, %v", n, err)
	}
}

// That TLS does not reach the data is said, unless it does not matter or is known.
func TestWarningOfPlainData(t *testing.T) {
	for _, test := range []struct {
		guard          *guard
		provider, data string
		warns          bool
	}{
		{&guard{}, tcpName, "", true}, {&guard{}, tcpName, "plain", false}, {&guard{}, "verbs", "", false}, {nil, tcpName, "", false},
	} {
		var log bytes.Buffer
		c := &conductor{log: zerolog.New(&log), cfg: &config.Config{TLS: config.TLS{Data: test.data}}, guard: test.guard, fabrics: []*openFabric{{name: test.provider}}}
		c.warnOfPlainData()
		if got := strings.Contains(log.String(), "docs/security.md"); got != test.warns {
			t.Errorf("%+v: %q", test, log.String())
		}
	}
}
