package tcp

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
)

// Security makes the connections of a device mutual TLS. Its methods may be called
// from any goroutine, for many connections at once.
type Security interface {
	// Server returns the configuration of the accepting end, and Client that of the
	// end that dials the named node. They are asked for each connection, so that
	// certificates that have changed count from the next one on. The caller may
	// change what they return.
	Server() *tls.Config
	Client(node string) *tls.Config
	// Check says why the other end of an accepted connection, whose certificate
	// crypto/tls has verified, is not the node that an endpoint was made for.
	Check(node string, s tls.ConnectionState) error
	// Refused is told of each incoming connection that is closed before it has
	// become an endpoint's, and why. It must not wait.
	Refused(from net.Addr, err error)
}

// ErrTooOften is why a host's connections are closed at once that has made many in vain.
var ErrTooOften = errors.New("tcp: too many connections in vain")

// ErrSecurity is wrapped by what Connect returns when one end has TLS and the other
// has not.
var ErrSecurity = errors.New("tcp: one end has TLS for data connections and the other has not")

var (
	errHandshakeSize = errors.New("tcp: too many bytes before the end of the handshake")
	errOutgoing      = errors.New("tcp: the peer makes TLS answer faster than it reads")
)

const (
	// recordSize is the most plaintext of a TLS record, and recordExtra more than
	// what encryption adds to it, the header of recordHeader bytes included.
	recordSize   = 16 << 10
	recordExtra  = 256
	recordHeader = 5
	// sealedRecords is how many records are encrypted before they are written: at
	// least as much as the socket usually takes at once would only be in the way of
	// answers.
	sealedRecords = 4
	// outgoingSize is the room for them, and for what crypto/tls itself says.
	outgoingSize = (sealedRecords + 1) * (recordSize + recordExtra)
	// maxHandshake is how many bytes a peer may send before its greeting is over:
	// far more than any chain of certificates takes.
	maxHandshake = 64 << 10
)

// secured is the TLS of one connection. crypto/tls does the handshake over a net.Conn,
// as it likes; after moveTo it reads from one buffer and writes to another, and the
// agent moves bytes between them and the socket. So nothing that crypto/tls does can
// block the agent or leave a record half written.
type secured struct {
	net.Conn // until moveTo; what Read and Write go to
	tls      *tls.Conn
	left     int // bytes that the peer may send before moveTo
	// Of the record that crypto/tls has a part of: the first bytes of its header, and
	// how many bytes follow those that it has.
	header [recordHeader]byte
	heads  int
	rest   int

	// Everything below belongs to the agent, after moveTo.

	fd int // -1: the handshake is not over, or the socket is closed
	// in has bytes [r, w) for crypto/tls. calls is how often the socket may be read
	// in this turn, got how many bytes that brought, and more that there may be more.
	in    []byte
	r, w  int
	calls int
	got   int
	more  bool
	err   error // the end of reading
	// out is what is to be written, of which off bytes are. While underWay, it has
	// bytes of the frames that gather has listed, and marks are the records in it that are not
	// all with the kernel.
	out      []byte
	off      int
	underWay bool
	marks    []mark
}

// mark is the end of a record in out, and how many bytes of frames it has.
type mark struct{ end, bytes int }

// secure puts TLS on conn: end is tls.Client or tls.Server.
func (d *Device) secure(conn net.Conn, end func(net.Conn, *tls.Config) *tls.Conn, c *tls.Config) *secured {
	// Records of full size from the start: what they hold is complete anyway.
	c.DynamicRecordSizingDisabled = true
	s := &secured{Conn: conn, left: maxHandshake, fd: -1}
	s.tls = end(s, c)
	return s
}

// moveTo ends the time of the handshake: from now on the descriptor is used.
func (s *secured) moveTo(fd, buffer int) {
	// What the peer has encrypted at once is to be had with one read.
	s.fd, s.in, s.out = fd, make([]byte, buffer+sealedRecords*recordExtra), make([]byte, 0, outgoingSize)
	s.marks = make([]mark, 0, sealedRecords)
}

// Read implements net.Conn for crypto/tls. After moveTo it returns unix.EAGAIN, which
// is temporary for crypto/tls, when the turn has had its bytes.
func (s *secured) Read(b []byte) (int, error) {
	if s.in == nil {
		return s.readHandshake(b)
	}
	if s.r == s.w {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	n := s.within(s.in[s.r:min(s.w, s.r+len(b))])
	copy(b, s.in[s.r:s.r+n])
	s.r += n
	return n, nil
}

// within returns how many bytes of p belong to the record that crypto/tls is reading. It
// is given no others, so that none are where the agent cannot see them.
func (s *secured) within(p []byte) int {
	n := 0
	if s.rest == 0 {
		n = copy(s.header[s.heads:], p)
		if s.heads += n; s.heads == recordHeader {
			s.rest, s.heads = int(binary.BigEndian.Uint16(s.header[3:])), 0
		}
	}
	body := min(s.rest, len(p)-n)
	s.rest -= body
	return n + body
}

// dry reports that nothing more can come in this turn.
func (s *secured) dry() bool { return s.r == s.w && s.calls == 0 }

// readHandshake is Read before moveTo. It too reads no further than to the end of a
// record: the first data may follow the welcome at once.
func (s *secured) readHandshake(b []byte) (int, error) {
	if s.left == 0 {
		return 0, errHandshakeSize
	}
	most := s.rest
	if most == 0 {
		most = recordHeader - s.heads
	}
	n, err := s.Conn.Read(b[:min(len(b), s.left, most)])
	s.left -= s.within(b[:n])
	return n, err
}

// fill reads from the socket, unless this turn has.
func (s *secured) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.calls == 0 {
		return unix.EAGAIN
	}
	s.calls--
	n, err := shm.ReadFD(s.fd, s.in)
	if n == 0 && err == nil {
		err = io.EOF
	}
	if err != nil {
		s.more = false
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			s.err = err
		}
		return err
	}
	s.r, s.w, s.got = 0, n, n
	// A short read has drained the socket; level-triggered events tell of more.
	s.more = n == len(s.in)
	return nil
}

// Write implements net.Conn for crypto/tls. After moveTo it takes all or, from a peer
// that has crypto/tls answer without end, nothing.
func (s *secured) Write(b []byte) (int, error) {
	if s.in == nil {
		return s.Conn.Write(b)
	}
	if len(s.out)+len(b) > cap(s.out) {
		return 0, errOutgoing
	}
	s.out = append(s.out, b...)
	return len(b), nil
}
