package randomfill

import (
	"encoding/binary"

	"github.com/rdmad/rdmad/internal/perf"
)

const (
	requestMagic  = 0x4c494652 // "RFIL"
	requestHeader = 32
)

// request is what a client asks for.
type request struct {
	// id comes back as the immediate of the last write.
	id   uint32
	seed uint64
	// pageSize is in bytes.
	pageSize uint64
	lists    Lists
}

// requestSize is the size of a request for so many pages of each region.
func requestSize(pages int) int { return requestHeader + Regions*4*pages }

// encode writes the request to b, which must be of requestSize, little endian:
//
//	 0  u32   "RFIL"
//	 4  u32   id
//	 8  u64   seed
//	16  u64   bytes of a page
//	24  u32   n, pages of each region
//	28  u32   0
//	32  [n]u32, [n]u32   pages of the first and of the second region
func (q request) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint32(b, requestMagic)
	le.PutUint32(b[4:], q.id)
	le.PutUint64(b[8:], q.seed)
	le.PutUint64(b[16:], q.pageSize)
	le.PutUint32(b[24:], uint32(len(q.lists[0])))
	le.PutUint32(b[28:], 0)
	at := requestHeader
	for _, list := range q.lists {
		for _, page := range list {
			le.PutUint32(b[at:], page)
			at += 4
		}
	}
}

// decode reads a request, which came by the network, and checks it against the layout that the
// sides have agreed on. Errors are *perf.InputError: nothing was written for such a request.
func (l Layout) decode(b []byte) (request, error) {
	le := binary.LittleEndian
	if len(b) < requestHeader || le.Uint32(b) != requestMagic || le.Uint32(b[28:]) != 0 {
		return request{}, perf.Inputf("a request of %d bytes that is none", len(b))
	}
	q := request{id: le.Uint32(b[4:]), seed: le.Uint64(b[8:]), pageSize: le.Uint64(b[16:])}
	pages := le.Uint32(b[24:])
	if q.pageSize != uint64(l.PageSize) || uint64(pages) != uint64(l.Pages) || len(b) != requestSize(l.Pages) {
		return request{}, perf.Inputf("a request of %d bytes for %d pages of %d bytes: want %d bytes for %d pages of %d bytes",
			len(b), pages, q.pageSize, requestSize(l.Pages), l.Pages, l.PageSize)
	}
	at := requestHeader
	for r := range q.lists {
		list := make([]uint32, pages)
		for i := range list {
			list[i] = le.Uint32(b[at:])
			at += 4
		}
		q.lists[r] = list
	}
	if err := l.CheckLists(q.lists); err != nil {
		return request{}, err
	}
	return q, nil
}
