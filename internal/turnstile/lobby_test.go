package turnstile

import (
	"fmt"
	"net"
	"testing"
)

// from is a connection of which only the end matters.
type from struct {
	net.Conn
	closed bool
}

func (f *from) Close() error { f.closed = true; return nil }

const most = 64

// A host that fills the lobby loses its own connections.
func TestLobby(t *testing.T) {
	var l Lobby
	quiet := new(from)
	l.Enter(quiet, "one", most)
	var many []*from
	for range 3 * most {
		conn := new(from)
		many = append(many, conn)
		l.Enter(conn, "many", most)
	}
	if quiet.closed || len(l.waiting) != most {
		t.Errorf("closed: %v, %d wait", quiet.closed, len(l.waiting))
	}
	for i, conn := range many {
		if left := i >= 3*most-(most-1); conn.closed == left {
			t.Errorf("connection %d: closed: %v", i, conn.closed)
		}
	}
	l.Leave(quiet)
	l.Leave(quiet)
	l.Leave(many[0])
	if len(l.waiting) != most-1 {
		t.Errorf("%d wait", len(l.waiting))
	}
}

// So does one that has many addresses, of which all are in its network.
func TestLobbyAndManyAddresses(t *testing.T) {
	var l Lobby
	quiet := new(from)
	l.Enter(quiet, "2001:db8:1::1", most)
	for i := range 3 * most {
		host := fmt.Sprintf("2001:db8:2::%x", i)
		l.Enter(new(from), host, most)
	}
	if quiet.closed {
		t.Error("another host is pushed out")
	}
}
