package slots

import "encoding/binary"

// Rights are what the handler of a request may do with a region that the
// request refers to. The values are part of the layout.
type Rights uint32

const (
	// RightWrite lets the handler write.
	RightWrite Rights = 1 << iota
	// RightRead lets the handler read.
	RightRead
	// RightAtomic lets the handler compare and swap, and fetch and add.
	RightAtomic

	// AllRights are all of them.
	AllRights = RightWrite | RightRead | RightAtomic
)

// String returns the rights as letters: "wra", with a dash for each that lacks.
func (r Rights) String() string {
	b := []byte("---")
	for i, c := range []byte("wra") {
		if r&(1<<i) != 0 {
			b[i] = c
		}
	}
	return string(b)
}

// RegionID names a region of a domain of a node: an index, which is used again,
// in the lower half, and a generation, which tells its uses apart, in the upper.
// 0 names none.
type RegionID uint64

// MakeRegionID builds an id.
func MakeRegionID(index, generation uint32) RegionID {
	return RegionID(uint64(generation)<<32 | uint64(index))
}

// Index returns the index.
func (id RegionID) Index() uint32 { return uint32(id) }

// Generation returns the generation.
func (id RegionID) Generation() uint32 { return uint32(id >> 32) }

const (
	// MaxRefs is how many regions a request can refer to.
	MaxRefs = 8
	// RefSize is the size in bytes of a reference in a request.
	RefSize = 32
)

// Ref is a reference to a part of a region, as it lies at the start of the
// payload of a request with FlagRefs.
//
//	 0               8       12      16              24              32
//	+---------------+-------+-------+---------------+---------------+
//	| region        | rights| 0     | offset        | length        |
//	+---------------+-------+-------+---------------+---------------+
type Ref struct {
	// Region is the region, one of the requester's.
	Region RegionID
	// Rights are what the handler may do.
	Rights Rights
	// Offset and Length are the part of the region, in bytes.
	Offset, Length uint64
}

// Encode writes r into the first RefSize bytes of b.
func (r *Ref) Encode(b []byte) {
	b = b[:RefSize]
	le := binary.LittleEndian
	le.PutUint64(b[0:], uint64(r.Region))
	le.PutUint64(b[8:], uint64(r.Rights))
	le.PutUint64(b[16:], r.Offset)
	le.PutUint64(b[24:], r.Length)
}

// Decode reads the reference in b, which may be shared memory: every byte is
// read once. It returns false if r can refer to nothing, wherever the region is:
// bits that must be zero are not, no rights, or an end beyond all numbers.
func (r *Ref) Decode(b []byte) bool {
	b = b[:RefSize:RefSize]
	le := binary.LittleEndian
	rights := le.Uint64(b[8:])
	*r = Ref{Region: RegionID(le.Uint64(b[0:])), Rights: Rights(rights), Offset: le.Uint64(b[16:]), Length: le.Uint64(b[24:])}
	return rights != 0 && rights&^uint64(AllRights) == 0 && r.Region != 0 && r.Offset+r.Length >= r.Offset
}

// Inside reports whether the n bytes at off lie within size bytes.
func Inside(off, n, size uint64) bool { return off <= size && n <= size-off }
