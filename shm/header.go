package shm

import (
	"errors"
	"fmt"
)

// The header page, first in every segment (docs/layout.md, "Segment header"):
//
//	 0        8        16       24                       64
//	+--------+----+---+--------+------------------------+-------+--- ... 4096
//	| magic  |kind| 0 | size   | 0                      |version| 0
//	+--------+----+---+--------+------------------------+-------+---
//
// version is stored last: a non-zero version says that the rest is complete.
const (
	// HeaderSize is the size in bytes of the header page, the same on every
	// machine whatever its page size.
	HeaderSize = 4096
	// Magic spells "RDMADSEG" in the order of the bytes in memory.
	Magic = 0x47455344414d4452
	// ABIMajor changes when an older program would misread a segment.
	ABIMajor = 4
	// ABIMinor changes when fields are added that an older program may ignore.
	ABIMinor = 4
	// ABIVersion is what the header holds: major in the upper half.
	ABIVersion uint32 = ABIMajor<<16 | ABIMinor

	offMagic   = 0
	offKind    = 8
	offSize    = 16
	offVersion = 64
)

// Kind tells the segments apart.
type Kind uint32

const (
	// KindLane is a ring of slots (or the mirror of one).
	KindLane Kind = 1
	// KindWorker holds the hint rings and wake words of one attached process.
	KindWorker Kind = 2
	// KindDomain holds the bells of a domain's agent.
	KindDomain Kind = 3
	// KindRegion is memory that handlers of other nodes write to and read from.
	KindRegion Kind = 4
	// KindVault is a daemon's own memory of a lane; no worker is given one.
	KindVault Kind = 5
	// KindPulse is the supervisor's and its core's; no worker is given one.
	KindPulse Kind = 6
	// KindTest is for tests of this package's users.
	KindTest Kind = 99
)

// String returns the kind's name.
func (k Kind) String() string {
	switch k {
	case KindLane:
		return "lane"
	case KindWorker:
		return "worker"
	case KindDomain:
		return "domain"
	case KindRegion:
		return "region"
	case KindVault:
		return "vault"
	case KindPulse:
		return "pulse"
	case KindTest:
		return "test"
	}
	return fmt.Sprintf("kind(%d)", uint32(k))
}

var (
	// ErrNotReady is returned when a segment's creator has not finished it.
	ErrNotReady = errors.New("shm: segment is not ready")
	// ErrNotSealed is returned for a memfd that could still change its size.
	ErrNotSealed = errors.New("shm: segment is not sealed")
	// ErrBadSegment is returned for a descriptor that is not the wanted segment.
	ErrBadSegment = errors.New("shm: not a valid segment")
)

// VersionError is returned when two programs do not share a major ABI version.
type VersionError struct {
	// Ours and Theirs are ABI versions, major<<16 | minor.
	Ours, Theirs uint32
}

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("shm: ABI version %d.%d, this program speaks %d.%d",
		MajorOf(e.Theirs), MinorOf(e.Theirs), MajorOf(e.Ours), MinorOf(e.Ours))
}

// MajorOf returns the major number of an ABI version: programs share memory only with those of the same.
func MajorOf(version uint32) uint32 { return version >> 16 }

// MinorOf returns the minor number of an ABI version, which says what a program of the same major number knows of.
func MinorOf(version uint32) uint32 { return version & 0xffff }

// CheckABI returns nil if this program can use segments of the given version
// (major<<16 | minor), else a *VersionError.
func CheckABI(version uint32) error {
	if MajorOf(version) != ABIMajor {
		return &VersionError{Ours: ABIVersion, Theirs: version}
	}
	return nil
}
