package server

import "github.com/rdmad/rdmad/slots"

// WriteAt writes p to the region at off, by way of memory of the library; see
// io.WriterAt, and WriteFrom for a way without a copy. n is how many bytes are known
// to be written.
func (r RemoteRegion) WriteAt(p []byte, off int64) (n int, err error) {
	if n, err = r.copying(slots.OpWrite, slots.RightWrite, p, off); err != nil {
		err = r.failed("write", off, len(p), err)
	}
	return n, err
}

// ReadAt reads len(p) bytes of the region at off, by way of memory of the library; see
// io.ReaderAt, and ReadInto for a way without a copy. Bytes beyond the end are
// ErrOutOfBounds, and then none are read.
func (r RemoteRegion) ReadAt(p []byte, off int64) (n int, err error) {
	if n, err = r.copying(slots.OpRead, slots.RightRead, p, off); err != nil {
		err = r.failed("read", off, len(p), err)
	}
	return n, err
}

// window is how many stages one operation uses at a time: copying goes on while the
// network moves what was copied before.
const window = 4

// stagePart is a part of an operation under way.
type stagePart struct {
	op    uint16
	stage uint16
	p     []byte
}

// copying does an operation in parts, in order, with up to window of them under way.
func (r RemoteRegion) copying(kind slots.OpKind, right slots.Rights, p []byte, off int64) (n int, err error) {
	q, o, err := r.begin(kind, right, off, len(p))
	if err != nil {
		return 0, err
	}
	defer r.end()
	if err := q.staging.ready(); err != nil {
		return 0, err
	}
	var parts [window]stagePart
	first, count := 0, 0
	for rest := p; ; {
		// Without a part under way it waits for a stage; with one it makes do
		// with what it has, so that nobody waits for each other.
		stage, ok := uint16(0), false
		if err == nil && len(rest) > 0 && count < window {
			if stage, ok = q.staging.try(); !ok && count == 0 {
				if stage, err = q.staging.take(); err != nil {
					return n, err
				}
				ok = true
			}
		}
		if ok {
			part := &parts[(first+count)%window]
			*part = stagePart{stage: stage, p: rest[:min(len(rest), stageSize)]}
			if err = q.begin(&o, kind, part); err != nil {
				q.staging.give(stage)
				continue
			}
			rest = rest[len(part.p):]
			count++
			continue
		}
		if count == 0 {
			return n, err
		}
		part := &parts[first]
		res := q.wait(part.op)
		if e := opError(res.Status); e != nil && err == nil {
			err = e
		}
		if err == nil {
			if kind == slots.OpRead {
				mem, _ := q.staging.bytes(part.stage)
				copy(part.p, mem)
			}
			n += len(part.p)
		}
		q.staging.give(part.stage)
		part.p = nil
		first, count = (first+1)%window, count-1
	}
}

// begin submits a part, and makes o stand for the next one.
func (q *opQueue) begin(o *slots.Op, kind slots.OpKind, part *stagePart) (err error) {
	mem, at := q.staging.bytes(part.stage)
	if kind == slots.OpWrite {
		copy(mem, part.p)
	}
	o.Length, o.Local, o.LocalOffset = uint64(len(part.p)), q.staging.region.ID(), at
	if part.op, err = q.submit(o); err == nil {
		o.Offset += o.Length
	}
	return err
}

// Page is one piece of a WriteScattered.
type Page struct {
	// Off is where in the caller's region.
	Off int64
	// Bytes are what to write, by way of memory of the library.
	Bytes []byte
	// From is what to write instead of Bytes, unless it is the zero RegionRef,
	// without a copy.
	From RegionRef
}

func (p *Page) len() int {
	if p.From.region != nil {
		return p.From.Len()
	}
	return len(p.Bytes)
}

const (
	// listPieces is how many pieces one operation has at most, and listData where
	// in its stage the bytes of the first of them begin.
	listPieces = 512
	listData   = listPieces * slots.PieceSize
	// pieceSize is the most bytes of a piece without a copy.
	pieceSize = 1 << 30
	// listStages is how many stages one list uses at most.
	listStages = 16
)

// WriteScattered writes many pieces to places all over the region, in no particular
// order, with one operation for as many of them as the library's memory holds:
// several hundred pages of 4 KiB. Where they are in the region is checked before the first one is written.
// Pieces that overlap leave the bytes of any of them.
func (r RemoteRegion) WriteScattered(pages []Page) error {
	for i := range pages {
		if off, n := pages[i].Off, pages[i].len(); off < 0 || !slots.Inside(uint64(off), uint64(n), r.ref.Length) {
			return r.failed("write", off, n, ErrOutOfBounds)
		}
	}
	if err := r.scatter(pages); err != nil {
		return r.failed("write", 0, 0, err)
	}
	return nil
}

// scatter writes pieces that are all within the region.

func (r RemoteRegion) scatter(pages []Page) error {
	q, o, err := r.begin(slots.OpWriteList, slots.RightWrite, 0, 0)
	if err != nil {
		return err
	}
	defer r.end()
	for i := range pages {
		if from := pages[i].From; from.region != nil && !from.region.Of(r.call.server.session) {
			return ErrNotPermitted // its name may be that of another one here
		}
	}
	if err := q.staging.ready(); err != nil {
		return err
	}
	for done := 0; len(pages) > 0 && err == nil; {
		var l list
		if l.stages[0], err = q.staging.take(); err != nil {
			return err
		}
		l.used = 1
		pages, done = l.fill(&q.staging, pages, done)
		_, at := q.staging.bytes(l.stages[0])
		o.Offset, o.Length, o.Local, o.LocalOffset = 0, uint64(l.pieces), q.staging.region.ID(), at
		var res slots.Result
		if res, err = q.run(&o); err == nil {
			err = opError(res.Status)
		}
		for _, n := range l.stages[:l.used] {
			q.staging.give(n)
		}
	}
	return err
}

// list is an operation of many pieces: its table is at the start of its first stage.
type list struct {
	stages [listStages]uint16
	used   int
	pieces int
}

// fill puts as much of the pages, but for the first done bytes, into the list as it
// has room for, and returns what is left.
func (l *list) fill(s *staging, pages []Page, done int) ([]Page, int) {
	table, _ := s.bytes(l.stages[0])
	last, room := 0, listData // of the stage that is being filled
	for ; len(pages) > 0 && l.pieces < listPieces; l.pieces++ {
		p := &pages[0]
		rest := p.len() - done
		piece := slots.Piece{Offset: uint64(p.Off) + uint64(done)}
		n := 0
		if p.From.region != nil {
			n = min(rest, pieceSize)
			piece.Local, piece.LocalOffset = p.From.region.ID(), p.From.off+uint64(done)
		} else {
			if room == stageSize {
				stage, ok := uint16(0), false
				if l.used < listStages {
					stage, ok = s.try()
				}
				if !ok {
					break
				}
				l.stages[l.used] = stage
				last, room = l.used, 0
				l.used++
			}
			mem, at := s.bytes(l.stages[last])
			n = copy(mem[room:], p.Bytes[done:])
			piece.Local, piece.LocalOffset = s.region.ID(), at+uint64(room)
			room += n
		}
		piece.Length = uint32(n)
		piece.Encode(table[l.pieces*slots.PieceSize:])
		if done += n; done == p.len() {
			pages, done = pages[1:], 0
		}
	}
	return pages, done
}
