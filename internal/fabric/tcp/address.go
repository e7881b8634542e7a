package tcp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
)

const (
	// addressPlain and addressTLS are the versions of an address: the second is that
	// of an endpoint whose connection has TLS.
	addressPlain = 1
	addressTLS   = 2
	addressFixed = 20
	tokenSize    = 16
	maxHost      = 255
)

// errAddress is the cause of every refused address blob.
var errAddress = errors.New("not a tcp endpoint address")

// token proves that a connection comes from whom the bootstrap introduced. It is
// good for one connection.
type token [tokenSize]byte

func newToken() token {
	var t token
	// crypto/rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(t[:])
	return t
}

// address is what a peer's Connect needs.
type address struct {
	host  string
	port  uint16
	token token
	tls   bool
}

// dial returns the address for net.Dial.
func (a address) dial() string { return net.JoinHostPort(a.host, strconv.Itoa(int(a.port))) }

// encode returns the blob, at most 275 bytes, little endian:
//
//	 0  u8    version: 1, or 2 for a connection with TLS
//	 1  u8    n, length of the host name or IP address
//	 2  u16   port
//	 4  [16]  token
//	20  [n]   host
func (a address) encode() []byte {
	b := make([]byte, addressFixed+len(a.host))
	b[0], b[1] = addressPlain, byte(len(a.host))
	if a.tls {
		b[0] = addressTLS
	}
	binary.LittleEndian.PutUint16(b[2:], a.port)
	copy(b[4:], a.token[:])
	copy(b[addressFixed:], a.host)
	return b
}

// decodeAddress is the inverse of encode.
func decodeAddress(b []byte) (address, error) {
	var a address
	if len(b) < addressFixed {
		return a, fmt.Errorf("%w: %d bytes", errAddress, len(b))
	}
	if b[0] != addressPlain && b[0] != addressTLS {
		return a, fmt.Errorf("%w: version %d, want %d or %d", errAddress, b[0], addressPlain, addressTLS)
	}
	a.tls = b[0] == addressTLS
	if int(b[1]) != len(b)-addressFixed || b[1] == 0 {
		return a, fmt.Errorf("%w: host of %d bytes in %d", errAddress, b[1], len(b))
	}
	a.port = binary.LittleEndian.Uint16(b[2:])
	if a.port == 0 {
		return a, fmt.Errorf("%w: port 0", errAddress)
	}
	copy(a.token[:], b[4:])
	a.host = string(b[addressFixed:])
	return a, nil
}
