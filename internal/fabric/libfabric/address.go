package libfabric

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmad/rdmad/internal/fabric"
)

const (
	addressVersion = 1
	tokenSize      = 16
	// addressFixed is the part of an address before the strings.
	addressFixed = 56
	// maxName bounds libfabric's address of an endpoint, maxProvider a provider's name.
	maxName, maxProvider = 192, 64
)

// errAddress is the cause of every refused address blob.
var errAddress = errors.New("not a libfabric endpoint address")

// token tells the messages for an endpoint from guesses of strangers: only who got
// the endpoint's address over the bootstrap connection knows it.
type token [tokenSize]byte

// address is what a peer's Connect needs.
type address struct {
	// dataSize is how many bytes a write brings with it, 0 if a message follows it instead.
	dataSize uint8
	// version is the provider's, as libfabric has it.
	version uint32
	// host is the same for processes that can share memory, and hardly for others.
	host uint64
	// anchorAddr and anchorKey name memory for writes of no bytes.
	anchorAddr, anchorKey uint64
	token                 token
	provider              string
	// name is libfabric's address of the endpoint, control that of the device's endpoint for
	// control messages.
	name, control []byte
}

// encode returns the blob, little endian:
//
//	 0  u8    version, 1
//	 1  u8    bytes of data that come with a write, 0: a message follows it instead
//	 2  u16   0
//	 4  u32   version of libfabric's provider
//	 8  u64   host
//	16  u64   address of the anchor
//	24  u64   its key
//	32  [16]  token
//	48  u8, u8, u8, u8, u32   lengths of the three strings, 0, 0
//	56        provider, address of the endpoint, address for control messages
func (a address) encode() []byte {
	b := make([]byte, addressFixed, fabric.MaxAddress)
	b[0], b[1] = addressVersion, a.dataSize
	le := binary.LittleEndian
	le.PutUint32(b[4:], a.version)
	le.PutUint64(b[8:], a.host)
	le.PutUint64(b[16:], a.anchorAddr)
	le.PutUint64(b[24:], a.anchorKey)
	copy(b[32:], a.token[:])
	b[48], b[49], b[50] = byte(len(a.provider)), byte(len(a.name)), byte(len(a.control))
	b = append(b, a.provider...)
	b = append(b, a.name...)
	return append(b, a.control...)
}

// decodeAddress is the inverse of encode; it takes bytes from anybody.
func decodeAddress(b []byte) (address, error) {
	var a address
	if len(b) < addressFixed {
		return a, fmt.Errorf("%w: %d bytes", errAddress, len(b))
	}
	if b[0] != addressVersion {
		return a, fmt.Errorf("%w: version %d, this node has %d", errAddress, b[0], addressVersion)
	}
	le := binary.LittleEndian
	provider, name, control := int(b[48]), int(b[49]), int(b[50])
	if le.Uint16(b[2:]) != 0 || b[51] != 0 || le.Uint32(b[52:]) != 0 || len(b) != addressFixed+provider+name+control ||
		provider == 0 || provider > maxProvider || name == 0 || name > maxName || control == 0 || control > maxName {
		return a, fmt.Errorf("%w: damaged", errAddress)
	}
	a = address{
		dataSize: b[1], version: le.Uint32(b[4:]), host: le.Uint64(b[8:]),
		anchorAddr: le.Uint64(b[16:]), anchorKey: le.Uint64(b[24:]), token: token(b[32:48]),
	}
	rest := b[addressFixed:]
	a.provider = string(rest[:provider])
	a.name = append([]byte(nil), rest[provider:provider+name]...)
	a.control = append([]byte(nil), rest[provider+name:]...)
	return a, nil
}

// fits says why endpoints with the addresses a, of this node, and b cannot be connected.
// The error is a *PeerError.
func (a address) fits(b address) error {
	switch {
	case a.provider != b.provider:
		return &PeerError{What: "provider", Here: fmt.Sprintf("%q", a.provider), There: fmt.Sprintf("%q", b.provider),
			Hint: "set libfabric.provider to the same on both nodes"}
	case a.provider == shmProvider && a.host != b.host:
		return &PeerError{What: "host or user", Here: fmt.Sprintf("%016x", a.host), There: fmt.Sprintf("%016x", b.host),
			Hint: "the provider shm connects processes of one user on one host; use another between hosts"}
	case a.provider == shmProvider && a.version != b.version:
		return &PeerError{What: "version of the provider", Here: versionText(a.version), There: versionText(b.version),
			Hint: "install the same libfabric for both"}
	case a.dataSize != b.dataSize:
		return &PeerError{What: "size of the data that comes with a write", Here: fmt.Sprint(a.dataSize), There: fmt.Sprint(b.dataSize),
			Hint: "the versions of libfabric are too different: install the same on both nodes"}
	}
	return nil
}

const (
	// shmProvider is the one provider that needs to be told more of the peer.
	shmProvider = "shm"
	// rxmProvider is the default, whose connections are found among the process's descriptors.
	rxmProvider = "tcp;ofi_rxm"
)

// versionText prints a version as libfabric encodes it.
func versionText(v uint32) string { return fmt.Sprintf("%d.%d", v>>16, v&0xffff) }
