package agent

import (
	"encoding/binary"
	"time"

	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

const (
	// chunkSize is the most bytes of an operation that move at a time, and roomyChunk
	// while nobody waits for anything small.
	chunkSize  = 64 << 10
	roomyChunk = 1 << 20
	// smallCost is what a chunk counts for at least when workers share a
	// connection: a small one costs the device as much as these bytes. pieceCost is what a piece of a
	// list counts for that is read on the way to the next chunk: a list may have many that are empty.
	smallCost = 1 << 10
	pieceCost = 64
)

// mover carries out the operations of all workers of a domain on the regions of one
// peer, or on those of this node. Workers take turns, by deficit round robin: in a
// turn each moves a chunk's worth of bytes, so that an operation waits at most for a
// chunk of each other worker, however large their operations are. It belongs to the
// agent.
type mover struct {
	domain *Domain
	near   bool
	flows  map[int]*flow // by worker id
	// active are the flows that have something to do, the one whose turn it is
	// first. parked are those that wait for memory to be registered.
	active, parked []*flow

	// End is the connection, nil while there is none, and always if near.
	End *ActiveEnd
	// redo are the work requests that were under way when a connection was lost,
	// oldest first. They come before anything else on the next one.
	redo []bulkPost
	// suspended: the link is lost, and nothing happens until resume or abandon.
	suspended bool
	// opening: Connect is at work, for the attempt-th time.
	opening bool
	attempt uint64
	// Connect opens the connection and calls Connected with the attempt, soon, unless
	// the session has ended. False: there is nobody left to do it.
	Connect func(attempt uint64) bool
	// Register registers a region with the connection's device and calls
	// Registered, soon.
	Register func(e *ActiveEnd, r *Region) bool
	// Spawn runs a task on a goroutine that ends before its agent does; nil in tests. False: nobody is left to do it.
	Spawn func(task func()) bool
	// Later calls LookAgain, after StandsStillAfter or more; nil in tests. False: nobody is left to do it. watching:
	// it is to be called, for the connection watched, on which everything before doneThen was complete.
	Later    func() bool
	watching bool
	watched  *ActiveEnd
	doneThen uint64
	// Patience is for how long sessions may end one after the other without any operation that waits completing; nil in tests.
	// barren is since when they do, by shm.Nanotime, 0 if none has ended since the last one completed, or since nothing waited.
	Patience func() time.Duration
	barren   int64
	// Renews: the connection is made anew after RenewAfter regions that the peer has taken back since it was made, which are
	// takenBack.
	Renews    bool
	takenBack int
}

// RenewAfter is after how many regions that a peer has taken back the connection to it is made anew, if the peer must keep
// places free for as long as it has the connection (fabric.Caps.LateAccess).
const RenewAfter = 8 << 10

// flow is the operations of one worker, oldest first.
type flow struct {
	head, tail *operation
	// deficit is how many bytes it may move before the next one's turn; in its
	// turn, it has had this turn's share.
	deficit int
	inTurn  bool
	queued  bool // in active or parked
}

// busy reports whether there is anything to do.
func (m *mover) busy() bool {
	return !m.suspended && (len(m.active) > 0 || len(m.redo) > 0 || m.End != nil && len(m.End.wrs) > 0)
}

// waiting reports whether there are operations that were not handed to the connection there is.
func (m *mover) waiting() bool { return len(m.active)+len(m.parked)+len(m.redo) > 0 }

// add queues an accepted operation.
func (m *mover) add(o *operation) {
	if !m.waiting() {
		m.barren = 0
	}
	f := m.flows[o.worker.ID]
	if f == nil {
		f = new(flow)
		m.flows[o.worker.ID] = f
	}
	if f.tail == nil {
		f.head = o
	} else {
		f.tail.next = o
	}
	f.tail = o
	if !f.queued {
		f.queued = true
		m.active = append(m.active, f)
	}
}

// pop takes the first operation, which is posted or has failed, from its flow.
func (f *flow) pop() *operation {
	o := f.head
	if f.head = o.next; f.head == nil {
		f.tail = nil
	}
	o.next = nil
	return o
}

// move does what there is room for, in turns, and returns how many chunks it moved.
func (m *mover) move() (work int) {
	if !m.near && m.End == nil {
		m.open()
		return 0
	}
	if m.renew() {
		return m.flush()
	}
	if work = m.again(); len(m.redo) > 0 {
		return work + m.flush()
	}
	chunk := chunkSize
	if m.domain.agent.alone() {
		chunk = roomyChunk
	}
	// While messages wait: of bytes that are copied between processes of this node, and of what reading lists
	// costs. What is posted to another node has the connection's bounds.
	budget := chunk
	for len(m.active) > 0 && budget > 0 && (m.near || m.End.room()) {
		f := m.active[0]
		if !f.inTurn {
			f.inTurn = true
			f.deficit += chunk
		}
		// What it did not use while it was parked, or when chunks were larger, is not saved up.
		f.deficit = min(f.deficit, chunk)
		parked := false
		for f.head != nil && f.deficit > 0 && !parked {
			if budget <= 0 || !m.near && !m.End.room() {
				return work + m.flush()
			}
			o := f.head
			reading := pieceCost * m.domain.advance(o)
			n := 0
			if !o.done {
				if n, parked = m.step(o, chunk); parked {
					break
				}
				work++
			}
			cost := max(n, smallCost, reading)
			f.deficit -= cost
			if budget -= reading; m.near {
				budget -= cost - reading
			}
			if o.done {
				f.pop()
				if o.posted == 0 {
					m.domain.complete(o)
					work++
				}
			}
		}
		m.active = m.active[:copy(m.active, m.active[1:])]
		f.inTurn = false
		switch {
		case parked:
			m.parked = append(m.parked, f)
		case f.head != nil:
			m.active = append(m.active, f)
		default:
			f.leave()
		}
	}
	return work + m.flush()
}

// renew closes a connection that is to be made anew when nothing is under way on it, and until then keeps more from being posted.
// It reports whether it is one.
func (m *mover) renew() bool {
	if !m.Renews || m.takenBack < RenewAfter || m.End == nil {
		return false
	}
	if e := m.End; e.next == e.done {
		m.End = nil
		e.Close()
		m.unpark()
		m.open()
	}
	return true
}

// step moves the next chunk of o, of at most the given size, and returns how much it was.
// parked: its local memory is not registered yet.
func (m *mover) step(o *operation, chunk int) (n int, parked bool) {
	n = int(min(o.length, uint64(chunk)))
	if m.near {
		o.copyChunk(n)
	} else if o.kind.Atomic() && !m.End.Atomics {
		o.status = slots.OpUnsupported
	} else {
		p := bulkPost{op: o, local: o.local, size: n, off: o.off, localOff: o.localOff}
		if !m.End.post(m, &p) {
			return 0, true
		}
		o.posted++
		if p.local != nil {
			p.local.hold()
		}
	}
	o.off += uint64(n)
	o.localOff += uint64(n)
	o.length -= uint64(n)
	o.done = o.length == 0 && o.piece >= o.pieces
	return n, false
}

// copyChunk carries out the next n bytes of an operation between regions of this
// node.
func (o *operation) copyChunk(n int) {
	switch mem := o.near.Mem; o.kind {
	case slots.OpWrite, slots.OpWriteList:
		copy(mem[o.off:o.off+uint64(n)], o.local.Mem[o.localOff:])
	case slots.OpRead:
		copy(o.local.Mem[o.localOff:o.localOff+uint64(n)], mem[o.off:])
	case slots.OpCompareSwap:
		word := shm.Uint64At(mem, int(o.off))
		for o.value = word.Load(); o.value == o.compare && !word.CompareAndSwap(o.compare, o.swap); {
			o.value = word.Load()
		}
	case slots.OpFetchAdd:
		o.value = shm.Uint64At(mem, int(o.off)).Add(o.swap) - o.swap
	}
}

// flush hands the connection what was posted.
func (m *mover) flush() int {
	if m.End == nil {
		return 0
	}
	if err := m.End.flush(); err != nil {
		m.Broken(err)
		return 1
	}
	m.watch()
	return 0
}

// open asks for the connection, if there is none.
func (m *mover) open() {
	if m.near || m.End != nil || m.opening || m.suspended {
		return
	}
	m.attempt++
	if m.opening = m.Connect != nil && m.Connect(m.attempt); !m.opening {
		m.abandon(func(*operation) bool { return true }, slots.OpLost)
	}
}

// Opens reports whether an attempt is under way that is to make the connection.
func (m *mover) Opens(attempt uint64) bool { return attempt == m.attempt && m.opening }

// Awaits reports whether operations wait for the connection that an attempt is to make.
func (m *mover) Awaits(attempt uint64) bool {
	return m.Opens(attempt) && len(m.active)+len(m.redo) > 0
}

// Connected ends an attempt to open the connection. e is nil when it failed: then what
// waits for it ends too. When the link was lost meanwhile, nobody waits for it.
func (m *mover) Connected(attempt uint64, e *ActiveEnd) error {
	if !m.Opens(attempt) {
		if e != nil {
			e.Close()
		}
		return nil
	}
	m.opening = false
	if e == nil {
		m.abandon(func(*operation) bool { return true }, slots.OpLost)
		return nil
	}
	e.mover = m
	m.End, m.takenBack = e, 0
	for i := range m.redo {
		m.redo[i].loose = false // the peer has closed the last connection before
	}
	return e.start()
}

// Registered ends a registration, which failed if mr is nil.
func (m *mover) Registered(e *ActiveEnd, r *Region, mr fabric.MemoryRegion) {
	delete(e.asked, r)
	switch {
	case m.End != e: // broken meanwhile, and nothing else keeps r from being unmapped
		if mr != nil {
			if err := mr.Close(); err != nil {
				event.RegistrationClose.On(&e.agent.log).Err(err).Msg("closing a region's registration")
			}
		}
		e.Release()
	case mr == nil:
		m.abandon(func(o *operation) bool { return o.local == r || m.redoes(o, r) }, slots.OpNoMemory)
	default:
		e.locals[r] = mr
	}
	r.release()
	m.unpark()
}

func (m *mover) unpark() {
	m.active = append(m.active, m.parked...)
	m.parked = m.parked[:0]
}

// abandon ends the queued operations that match. One of which something is under way
// ends when that is complete, or certain not to happen any more.
func (m *mover) abandon(match func(*operation) bool, status slots.OpStatus) {
	ended := m.abandonRedo(match, status)
	for _, f := range m.flows {
		var keep, last *operation
		for o := f.head; o != nil; {
			next := o.next
			o.next = nil
			switch {
			case o.status != slots.OpOK || match(o):
				if o.status == slots.OpOK {
					o.status = status
				}
				o.done, o.length, o.piece = true, 0, o.pieces
				if o.posted == 0 {
					ended = append(ended, o)
				}
			case last == nil:
				keep, last = o, o
			default:
				last.next, last = o, o
			}
			o = next
		}
		f.head, f.tail = keep, last
	}
	m.active, m.parked = prune(m.active), prune(m.parked)
	for _, o := range ended {
		m.domain.complete(o)
	}
}

// prune drops the flows that have nothing to do from a list.
func prune(list []*flow) []*flow {
	kept := list[:0]
	for _, f := range list {
		if f.head != nil {
			kept = append(kept, f)
		} else {
			f.leave()
		}
	}
	return kept
}

// leave notes that a flow is in no list.
func (f *flow) leave() { f.queued, f.inTurn, f.deficit = false, false, 0 }

// nativeUint64 reads a number that a device wrote.
func nativeUint64(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }
