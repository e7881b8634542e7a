package agent

import "github.com/rdmad/rdmad/slots"

// WorkerOps is the daemon's side of a service worker's operations.
type WorkerOps struct {
	Ring    *slots.OpRing
	open    int  // accepted and not complete
	touched bool // in Domain.completed
}

// workerOps and cycleOps bound what an agent accepts in a cycle of the operations of a worker, and of all of a
// domain, which may be exceeded by those of one worker: others have the same agent. Each piece of a list
// counts as one.
const (
	workerOps = 2048
	cycleOps  = 2 * workerOps
)

// operation is something that was asked for of a region, and accepted. It is used again when it is complete.
type operation struct {
	next   *operation // in its flow, or among the spare ones
	worker *Worker
	grants *grants
	kind   slots.OpKind
	cookie uint64
	// near is the other region of an operation between processes of this node;
	// else it is the remote one.
	near *Region
	far  *importedRegion
	// base and size are the referenced part of the region.
	base, size uint64
	// What is left to do: length bytes at off of the region, from or to
	// localOff of local; and of a list its pieces from piece on.
	off, length, localOff uint64
	local                 *Region
	table                 *Region
	tableOff              uint64
	piece, pieces         int
	compare, swap         uint64

	posted int  // work requests that are not complete
	done   bool // all are posted
	status slots.OpStatus
	value  uint64
}

// submitted takes the operations that worker w has submitted.
func (d *Domain) submitted(w *Worker) int {
	q := w.Ops
	if q == nil {
		return 0
	}
	n := 0
	for ; q.open < q.Ring.Room(); n++ {
		if n > workerOps || d.ops <= n {
			d.postpone(w)
			break
		}
		var s slots.Op
		ok, more := q.Ring.Next(&s)
		if !more {
			break
		}
		o := d.takeOp()
		o.worker, o.cookie = w, s.Cookie
		q.open++
		status := slots.OpInvalid
		if ok {
			status = d.accept(o, &s)
			n += o.pieces
		} else {
			d.agent.Count.ProtocolErrors++
			d.Offence(w, badOperation)
		}
		if status != slots.OpOK || o.done {
			o.status, o.done = status, true
			d.complete(o)
		}
	}
	d.ops -= n
	return n
}

// accept checks an operation and queues it. done says that there is nothing to do.
func (d *Domain) accept(o *operation, s *slots.Op) slots.OpStatus {
	g, status := d.grantsOf(o.worker, s)
	if g == nil {
		return status
	}
	e := &g.list[s.Ref]
	var right slots.Rights
	switch s.Kind {
	case slots.OpWrite, slots.OpWriteList:
		right = slots.RightWrite
	case slots.OpRead:
		right = slots.RightRead
	default:
		right = slots.RightAtomic
	}
	if e.ref.Rights&right == 0 {
		return slots.OpNotPermitted
	}
	o.kind, o.near, o.far, o.base, o.size = s.Kind, e.local, e.remote, e.ref.Offset, e.ref.Length
	o.compare, o.swap = s.Compare, s.Swap
	total := uint64(slots.AtomicSize)
	switch {
	case s.Kind == slots.OpWriteList:
		total, status = d.acceptList(o, s)
	case s.Kind.Atomic():
		s.Length = slots.AtomicSize
		if status = o.locate(s.Offset, s.Length); status == slots.OpOK && o.off%slots.AtomicSize != 0 {
			status = slots.OpMisaligned
		}
	default:
		if status = o.locate(s.Offset, s.Length); status == slots.OpOK {
			status = d.useLocal(o, s.Local, s.LocalOffset, s.Length)
		}
		total = s.Length
	}
	if status != slots.OpOK {
		return status
	}
	if total <= chunkSize {
		d.agent.company.met++
	}
	o.done = o.length == 0 && o.pieces == 0
	if e.remote != nil && e.remote.revoked || e.local != nil && e.local.Revoked {
		return slots.OpExpired
	}
	if e.remote != nil && (g.revoked || e.remote.dead) {
		return slots.OpLost
	}
	o.grants = g
	g.busy++
	for _, r := range [...]*Region{o.local, o.table} {
		if r != nil {
			r.hold()
		}
	}
	if o.done {
		return slots.OpOK
	}
	m := d.near
	if e.remote != nil {
		m = g.lane.Peer.Mover
	}
	m.add(o)
	return slots.OpOK
}

// grantsOf finds the grants of the call that s is for: one that worker w handles.
func (d *Domain) grantsOf(w *Worker, s *slots.Op) (*grants, slots.OpStatus) {
	if int(s.Lane) >= slots.MaxLanes {
		return nil, slots.OpInvalid
	}
	l := d.ins[s.Lane]
	if l == nil || uint64(s.Slot) >= uint64(l.geo.Slots) {
		return nil, slots.OpExpired
	}
	i := int(s.Slot)
	rec := &l.records[i]
	if !rec.active || rec.ticket != s.Ticket || int(rec.worker) != w.ID ||
		l.Ring.AnswerWord(i) != slots.MakeWord(slots.Picked, int(rec.run), w.ID, rec.ticket) {
		return nil, slots.OpExpired
	}
	if rec.refs && rec.grants == nil {
		return nil, slots.OpLost // with the core that knew them
	}
	if rec.grants == nil || int(s.Ref) >= rec.grants.n {
		return nil, slots.OpInvalid
	}
	return rec.grants, slots.OpOK
}

// locate checks a place in the referenced part.
func (o *operation) locate(off, n uint64) slots.OpStatus {
	if !slots.Inside(off, n, o.size) {
		return slots.OpOutOfBounds
	}
	o.off, o.length = o.base+off, n
	return slots.OpOK
}

// useLocal checks a place in the worker's own memory.
func (d *Domain) useLocal(o *operation, id slots.RegionID, off, n uint64) slots.OpStatus {
	r := d.region(id, o.worker.ID)
	switch {
	case r == nil:
		return slots.OpNotPermitted
	case !slots.Inside(off, n, uint64(len(r.Mem))):
		return slots.OpOutOfBounds
	}
	o.local, o.localOff = r, off
	return slots.OpOK
}

// acceptList checks all pieces of a list, so that one that is wrong keeps the
// others from changing a byte, and returns how many bytes they are. They are read and checked again when their turn
// comes: the table is the worker's memory.
func (d *Domain) acceptList(o *operation, s *slots.Op) (total uint64, status slots.OpStatus) {
	if s.Length > slots.MaxPieces {
		return 0, slots.OpInvalid
	}
	if status = d.useLocal(o, s.Local, s.LocalOffset, s.Length*slots.PieceSize); status != slots.OpOK {
		return 0, status
	}
	o.table, o.tableOff, o.pieces = o.local, o.localOff, int(s.Length)
	for k := range o.pieces {
		if status = d.loadPiece(o, k); status != slots.OpOK {
			o.local, o.table = nil, nil
			return 0, status
		}
		total += o.length
	}
	// Nothing is current: the first piece is loaded when its turn comes.
	o.local, o.length = nil, 0
	return total, slots.OpOK
}

// loadPiece makes piece k of a list the current one. It holds nothing.
func (d *Domain) loadPiece(o *operation, k int) slots.OpStatus {
	var p slots.Piece
	p.Decode(o.table.Mem[o.tableOff+uint64(k)*slots.PieceSize:])
	if status := o.locate(p.Offset, uint64(p.Length)); status != slots.OpOK {
		return status
	}
	return d.useLocal(o, p.Local, p.LocalOffset, uint64(p.Length))
}

// advance sees to it that an operation with work left has a current piece, and returns how many it
// has read for that.
func (d *Domain) advance(o *operation) (read int) {
	for ; o.length == 0 && o.piece < o.pieces; read++ {
		if o.local != nil {
			o.local.release()
			o.local = nil
		}
		status := d.loadPiece(o, o.piece)
		if status != slots.OpOK {
			// The worker has changed the table since it was checked.
			d.agent.Count.ProtocolErrors++
			d.Offence(o.worker, badTable)
			o.local, o.length, o.piece, o.status = nil, 0, o.pieces, status
			break
		}
		o.local.hold()
		o.piece++
	}
	o.done = o.length == 0 && o.piece >= o.pieces
	return read
}

// complete tells the worker how an operation ended, and ends it. An operation that
// is not in a flow any more, and of which no work request is under way.
func (d *Domain) complete(o *operation) {
	count := d.agent.Count
	count.RegionOps++
	if o.status != slots.OpOK {
		count.RegionOpsFailed++
	}
	if q := o.worker.Ops; q != nil {
		q.open--
		r := slots.Result{Cookie: o.cookie, Status: o.status, Value: o.value}
		if !q.Ring.Complete(&r) {
			count.ProtocolErrors++
			d.Offence(o.worker, fullResults)
		}
		if !q.touched {
			q.touched = true
			d.completed = append(d.completed, o.worker)
		}
	}
	g := o.grants
	if g != nil {
		for _, r := range [...]*Region{o.local, o.table} {
			if r != nil {
				r.release()
			}
		}
	}
	*o = operation{next: d.spareOps}
	d.spareOps = o
	if g != nil {
		g.operated()
	}
}

func (d *Domain) takeOp() *operation {
	o := d.spareOps
	if o == nil {
		return new(operation)
	}
	d.spareOps = o.next
	o.next = nil
	return o
}

// moveAll does what a cycle has time for of all operations, and wakes the workers
// whose operations are complete.
func (d *Domain) moveAll() (work int) {
	for _, m := range d.Movers {
		if m.busy() {
			work += m.move()
		}
	}
	for i, w := range d.completed {
		d.completed[i] = nil
		if q := w.Ops; q != nil {
			q.touched = false
			work++
			if q.Ring.Wake() {
				d.agent.Count.Wakes++
			}
		}
	}
	d.completed = d.completed[:0]
	return work
}

// abandon ends the operations that match: what is under way is waited for, the rest
// is not done.
func (d *Domain) abandon(match func(*operation) bool, status slots.OpStatus) {
	for _, m := range d.Movers {
		m.abandon(match, status)
	}
}
