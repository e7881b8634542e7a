package peerauth

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
)

// Channel is a bootstrap connection on which the hello comes next.
type Channel struct {
	net.Conn          // what messages go through
	Raw      net.Conn // the connection beneath, the same without TLS
	// State is that of TLS, nil without; Node is the name in the peer's certificate.
	State *tls.ConnectionState
	Node  string
}

// maxIntake is how many bytes a peer may send before the handshake of TLS is over:
// far more than any chain of certificates takes.
const maxIntake = 64 << 10

var errIntake = errors.New("too many bytes before the end of the handshake")

// intake reads from a connection, at most a number of bytes until it is opened. It is
// used by one goroutine at a time.
type intake struct {
	net.Conn
	reader *bufio.Reader
	left   int
	open   bool
}

func newIntake(conn net.Conn) *intake {
	return &intake{Conn: conn, reader: bufio.NewReader(conn), left: maxIntake}
}

// Read implements net.Conn.
func (i *intake) Read(b []byte) (int, error) {
	if i.open {
		return i.reader.Read(b)
	}
	if i.left == 0 {
		return 0, errIntake
	}
	n, err := i.reader.Read(b[:min(len(b), i.left)])
	i.left -= n
	return n, err
}
