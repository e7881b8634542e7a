package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
)

const (
	addressVersion = 1
	addressSize    = 76
	tokenSize      = 16

	minMTU, maxMTU = 256, 4096
	max24          = 1<<24 - 1
	// Number 1 is for the device's management, and 2^24-1 is every member of a multicast group.
	minPair, maxPair = 2, max24 - 1
	maxUnicastLID    = 0xbfff
)

// errAddress is the cause of every refused address blob.
var errAddress = errors.New("not a verbs endpoint address")

// token tells the messages for an endpoint from guesses of strangers: only who got
// the endpoint's address over the bootstrap connection knows it.
type token [tokenSize]byte

func newToken() token {
	var t token
	// crypto/rand.Read never fails: it ends the program instead.
	_, _ = rand.Read(t[:])
	return t
}

// random24 returns a random packet sequence number.
func random24() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:]) & max24
}

// privilegedKey is the bit of queue keys that are for privileged users: a device sends the key of its own queue pair instead.
const privilegedKey = 1 << 31

// random31 returns a random queue key that is not privileged.
func random31() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return binary.LittleEndian.Uint32(b[:]) &^ privilegedKey
}

// wireMode is a connection mode in an address.
type wireMode uint8

const (
	wireOOB wireMode = iota + 1
	wireCM
)

// String returns the value of the configuration's connect key.
func (m wireMode) String() string {
	switch m {
	case wireOOB:
		return ConnectOOB
	case wireCM:
		return ConnectCM
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Names by their code in an address; a code that is not here is refused.
var (
	wireLinks    = [...]string{1: linkInfiniBand, 2: linkEthernet}
	wireGIDTypes = [...]string{1: gidIB, 2: gidRoCEv1, 3: gidRoCEv2}
)

// codeOf returns the index of name in names, 0 if it is not there.
func codeOf(names []string, name string) byte {
	for i, n := range names {
		if n == name {
			return byte(i)
		}
	}
	return 0
}

// address is what a peer's Connect needs.
type address struct {
	mode      wireMode
	linkLayer string
	gidType   string
	gid       netip.Addr
	lid       uint16
	// mtu is the largest path MTU of this end in bytes.
	mtu int
	// reads is how many reads and atomics of the peer this end takes at a time.
	reads int
	// grh: this end's port, of InfiniBand, takes no packets without a global route header (IBV_QPF_GRH_REQUIRED).
	grh   bool
	token token

	// Of ConnectOOB only: the queue pair, the first packet sequence number, and
	// the queue pair that takes control messages.
	qpn, psn          uint32
	ctlQPN, ctlSecret uint32

	// listen is where the connection manager listens, of ConnectCM only.
	listen netip.AddrPort
}

// String names the endpoint in errors.
func (a address) String() string {
	if a.mode == wireCM {
		return a.listen.String()
	}
	return fmt.Sprintf("queue pair %#x at GID %s", a.qpn, a.gid)
}

// encode returns the blob, little endian:
//
//	 0  u8    version, 1
//	 1  u8    mode: 1 oob, 2 rdmacm
//	 2  u8    link layer: 1 InfiniBand, 2 Ethernet
//	 3  u8    GID type: 1 IB, 2 RoCE v1, 3 RoCE v2
//	 4  u16   LID, 0 on Ethernet
//	 6  u16   largest path MTU in bytes
//	 8  u32   queue pair number
//	12  u32   first packet sequence number
//	16  u32   queue pair number for control messages
//	20  u32   its queue key
//	24  [16]  GID
//	40  [16]  token
//	56  u8    reads and atomics taken at a time
//	57  u8    1: a port of InfiniBand that takes packets with a global route header only; else 0
//	58  u16   port of the connection manager
//	60  [16]  its IP address, IPv4 mapped to IPv6
//
// Bytes 8 to 23 are 0 with rdmacm, 58 to 75 with oob.
func (a address) encode() []byte {
	b := make([]byte, addressSize)
	b[0], b[1] = addressVersion, byte(a.mode)
	b[2], b[3] = codeOf(wireLinks[:], a.linkLayer), codeOf(wireGIDTypes[:], a.gidType)
	le := binary.LittleEndian
	le.PutUint16(b[4:], a.lid)
	le.PutUint16(b[6:], uint16(a.mtu))
	gid := a.gid.As16()
	copy(b[24:], gid[:])
	copy(b[40:], a.token[:])
	b[56] = byte(a.reads)
	if a.grh {
		b[57] = 1
	}
	if a.mode == wireOOB {
		le.PutUint32(b[8:], a.qpn)
		le.PutUint32(b[12:], a.psn)
		le.PutUint32(b[16:], a.ctlQPN)
		le.PutUint32(b[20:], a.ctlSecret)
		return b
	}
	le.PutUint16(b[58:], a.listen.Port())
	ip := a.listen.Addr().As16()
	copy(b[60:], ip[:])
	return b
}

// decodeAddress is the inverse of encode. It refuses everything that encode does
// not make: what it returns can be given to a device without further checks.
func decodeAddress(b []byte) (address, error) {
	var a address
	if len(b) != addressSize {
		return a, fmt.Errorf("%w: %d bytes", errAddress, len(b))
	}
	if b[0] != addressVersion {
		return a, fmt.Errorf("%w: version %d, want %d", errAddress, b[0], addressVersion)
	}
	if int(b[2]) >= len(wireLinks) || b[2] == 0 || int(b[3]) >= len(wireGIDTypes) || b[3] == 0 || b[57] > 1 {
		return a, fmt.Errorf("%w: link layer %d, GID type %d", errAddress, b[2], b[3])
	}
	le := binary.LittleEndian
	a = address{
		mode:      wireMode(b[1]),
		linkLayer: wireLinks[b[2]],
		gidType:   wireGIDTypes[b[3]],
		lid:       le.Uint16(b[4:]),
		mtu:       int(le.Uint16(b[6:])),
		gid:       netip.AddrFrom16([16]byte(b[24:40])),
		token:     token(b[40:56]),
		reads:     int(b[56]),
		grh:       b[57] == 1,
	}
	if a.token == (token{}) {
		return a, fmt.Errorf("%w: no token", errAddress)
	}
	if !validMTU(a.mtu) {
		return a, fmt.Errorf("%w: MTU %d", errAddress, a.mtu)
	}
	if (a.linkLayer == linkInfiniBand) != (a.gidType == gidIB) {
		return a, fmt.Errorf("%w: a GID of type %s on %s", errAddress, a.gidType, a.linkLayer)
	}
	if a.grh && a.linkLayer != linkInfiniBand {
		return a, fmt.Errorf("%w: a global route header for %s", errAddress, a.linkLayer)
	}
	if a.lid > maxUnicastLID || a.linkLayer == linkEthernet && a.lid != 0 {
		return a, fmt.Errorf("%w: LID %#x", errAddress, a.lid)
	}
	if !oneHost(a.gid) {
		return a, fmt.Errorf("%w: GID %s", errAddress, a.gid)
	}
	switch a.mode {
	case wireOOB:
		a.qpn, a.psn = le.Uint32(b[8:]), le.Uint32(b[12:])
		a.ctlQPN, a.ctlSecret = le.Uint32(b[16:]), le.Uint32(b[20:])
		if !validPair(a.qpn) || a.psn > max24 || !validPair(a.ctlQPN) || [18]byte(b[58:]) != [18]byte{} {
			return a, fmt.Errorf("%w: queue pairs %#x and %#x, sequence number %#x", errAddress, a.qpn, a.ctlQPN, a.psn)
		}
		if a.ctlSecret&privilegedKey != 0 {
			return a, fmt.Errorf("%w: a privileged queue key", errAddress)
		}
	case wireCM:
		a.listen = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[60:])).Unmap(), le.Uint16(b[58:]))
		if a.listen.Port() == 0 || !oneHost(a.listen.Addr()) || [16]byte(b[8:]) != [16]byte{} {
			return a, fmt.Errorf("%w: connection manager at %s", errAddress, a.listen)
		}
	default:
		return a, fmt.Errorf("%w: %s", errAddress, a.mode)
	}
	return a, nil
}

// validPair reports whether n can be the number of a queue pair that a process has made.
func validPair(n uint32) bool { return n >= minPair && n <= maxPair }

// oneHost reports whether an address can be that of one host: what a peer names must not have this node's device send to a group, or
// to everybody.
func oneHost(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// validMTU reports whether n is one of the path MTUs.
func validMTU(n int) bool { return n >= minMTU && n <= maxMTU && bits.OnesCount(uint(n)) == 1 }

// mismatch says why two ends cannot be connected, nil if they can.
func mismatch(here, there address) error {
	switch {
	case here.mode != there.mode:
		return fmt.Errorf("this side connects by %s, the peer by %s: set verbs.connect alike", here.mode, there.mode)
	case here.linkLayer != there.linkLayer:
		return fmt.Errorf("this side's port is on %s, the peer's on %s", here.linkLayer, there.linkLayer)
	case here.gidType != there.gidType:
		return fmt.Errorf("this side's GID %s is of type %s, the peer's %s of type %s: set verbs.gid_index on one of them",
			here.gid, here.gidType, there.gid, there.gidType)
	}
	return nil
}
