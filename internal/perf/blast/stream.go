package blast

import (
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/perf"
)

// fenceID is the ID of a read behind writes. Other work requests of senders have the message's number.
const fenceID = ^uint64(0)

// stream is what both ends of a queue pair have in common: messages go one way by it, numbered
// through all sizes.
type stream struct {
	t  *Tool
	s  *perf.Session
	ep fabric.Endpoint
	layout
	// base is where the part of this queue pair begins in the memory of both sides, mem that
	// part of this side's.
	base   int
	mem    []byte
	inline int
	// seed is the queue pair's own, so that messages of another one are noticed.
	seed uint64
	size int
}

func newStream(t *Tool, s *perf.Session, i int) stream {
	l := t.layout()
	base := i * l.size
	return stream{
		t: t, s: s, ep: s.Endpoints[i], layout: l, base: base, mem: s.Region.Bytes()[base : base+l.size],
		inline: t.InlineLimit(s.Caps), seed: t.seedOf(i),
	}
}

// seedOf is the seed of endpoint i.
func (t *Tool) seedOf(i int) uint64 { return t.Seed + uint64(i)<<32 }

// slot is the memory of message n.
func (q *stream) slot(n uint64) []byte {
	at := q.offset(n)
	return q.mem[at : at+q.size]
}

// local is memory of this side.
func (q *stream) local(at, size int) fabric.Local {
	return fabric.Local{Region: q.s.Region, Offset: uint64(q.base + at), Len: uint32(size)}
}

// remote is the address of the same place in the memory of the other side.
func (q *stream) remote(at int) uint64 { return q.s.Peer.Addr + uint64(q.base+at) }
