package agent

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/poller"
	"github.com/rdmad/rdmad/slots"
)

// simNet is the fabric of a simulation. What is posted is on the wire until the script
// says what becomes of it: it lands, the half of it does, or the connection is lost.
// It promises what a reliable connection does, and no more: writes of one connection
// land once, and in order but in a quarter of the seeds; a completion may come long after the write has landed, or
// never; what was posted before a Close may land after it; and one end may be gone
// for long before the other notices.
type simNet struct {
	w      *world
	serial uint64
	ends   []*simEnd // of which something is to come yet
}

var errSimPost = errors.New("the simulated device refuses")

type simDevice struct {
	net  *simNet
	node *simNode
	ends []*simEnd
}

// Open returns a device for a core of the node.
func (n *simNet) open(node *simNode) *simDevice { return &simDevice{net: n, node: node} }

func (d *simDevice) Caps() fabric.Caps {
	return fabric.Caps{MaxSendDepth: 4096, MaxRecvDepth: 4096, OrderedWrites: !d.net.w.unordered || d.net.w.mutant == mutOrderPromised}
}

func (d *simDevice) AllocPD() (fabric.ProtectionDomain, error) { return &simPD{dev: d}, nil }

func (d *simDevice) CreateCQ(int, *poller.Poller) (fabric.CQ, error) { return &simCQ{w: d.net.w}, nil }

// Close is what the kernel does when the core dies.
func (d *simDevice) Close() error {
	for _, e := range d.ends {
		_ = e.Close()
	}
	return nil
}

type simPD struct {
	dev *simDevice
	mr  *simRegion
}

func (p *simPD) Close() error { return nil }

func (p *simPD) Register(mem []byte, _ fabric.Access) (fabric.MemoryRegion, error) {
	p.dev.net.serial++
	p.mr = &simRegion{mem: mem, base: p.dev.net.serial << 32}
	return p.mr, nil
}

func (p *simPD) CreateEndpoint(a fabric.EndpointAttr) (fabric.Endpoint, error) {
	net := p.dev.net
	net.serial++
	e := &simEnd{net: net, pd: p, cq: a.CQ.(*simCQ), id: net.serial, attr: a}
	p.dev.ends = append(p.dev.ends, e)
	net.ends = append(net.ends, e)
	return e, nil
}

type simRegion struct {
	mem  []byte
	base uint64
}

func (r *simRegion) Bytes() []byte { return r.mem }

func (r *simRegion) Close() error { return nil }

func (r *simRegion) Remote() fabric.RemoteKey {
	return fabric.RemoteKey{Addr: r.base, Key: r.base, Len: uint64(len(r.mem))}
}

// simCQ gives out as many completions as the script likes.
type simCQ struct {
	w     *world
	queue []fabric.Completion
}

func (q *simCQ) Poll(c []fabric.Completion) (int, error) {
	n := min(len(c), len(q.queue))
	if n > 0 && q.w.chance(300) {
		n = q.w.n(n + 1)
	}
	copy(c, q.queue[:n])
	q.queue = q.queue[:copy(q.queue, q.queue[n:])]
	return n, nil
}

func (q *simCQ) Arm() (bool, error) { return len(q.queue) == 0, nil }

func (q *simCQ) Close() error { return nil }

// simEnd is one end of a connection.
type simEnd struct {
	net  *simNet
	pd   *simPD
	cq   *simCQ
	id   uint64
	attr fabric.EndpointAttr
	peer *simEnd
	lane *simLane // whose end it is
	seq  uint64   // of the connection

	active, closed bool
	// lost: the connection is, and this end knows or will never know.
	lost  bool
	recvs int
	posts uint64
	wire  []simWrite // posted and not landed, the oldest first
	acks  []simWrite // landed, and their completions not here yet, the oldest first
}

// simWrite is a posted work request. data is the memory that it is read from; a copy
// of it once the sender has gone.
type simWrite struct {
	fabric.SendWR
	data  []byte
	sum   uint64
	post  uint64    // its number among those of the connection
	heads []simHead // requests in it
}

// simHead is the first slot of a message.
type simHead struct {
	index  int
	ticket uint64
}

func (e *simEnd) Address() []byte { return binary.LittleEndian.AppendUint64(nil, e.id) }

// Connect joins it with an end that exists still.
func (e *simEnd) Connect(_ context.Context, peer []byte, _ fabric.Role) error {
	id := binary.LittleEndian.Uint64(peer)
	for _, p := range e.net.ends {
		if p.id == id && !p.closed && p.peer == nil {
			e.peer, p.peer = p, e
			return nil
		}
	}
	return &fabric.ConnectError{Peer: "sim", Err: fabric.ErrClosed}
}

func (e *simEnd) Activate() error {
	if e.closed || e.peer == nil {
		return fabric.ErrClosed
	}
	e.active = true
	return nil
}

var simSeed = maphash.MakeSeed()

func (e *simEnd) PostSend(wrs []fabric.SendWR) (int, error) {
	w := e.net.w
	take, err := len(wrs), error(nil)
	switch {
	case e.closed || e.lost:
		return 0, fabric.ErrClosed
	case e.awaits() && w.chance(50):
		take, err = w.n(take+1), fabric.ErrQueueFull
		w.count("post: queue full")
	case w.chance(w.rate.post):
		take, err = w.n(take+1), errSimPost
		w.count("post: error")
	}
	for _, wr := range wrs[:take] {
		mr := wr.Local.Region.(*simRegion)
		s := simWrite{SendWR: wr, data: mr.mem[wr.Local.Offset : wr.Local.Offset+uint64(wr.Local.Len)]}
		s.sum = maphash.Bytes(simSeed, s.data)
		e.posts++
		s.post = e.posts
		if e.lane.out != nil {
			s.heads = e.lane.heads(&wr)
		}
		e.wire = append(e.wire, s)
	}
	return take, err
}

// awaits reports whether a completion is to come: a queue is never full without.
func (e *simEnd) awaits() bool {
	for _, list := range [...][]simWrite{e.wire, e.acks} {
		for i := range list {
			if list[i].Flags&fabric.FlagSignaled != 0 {
				return true
			}
		}
	}
	return false
}

// heads returns the requests of a group, of its last write.
func (l *simLane) heads(wr *fabric.SendWR) (heads []simHead) {
	if wr.Op != fabric.OpWriteImm {
		return nil
	}
	imm := groupsend.Imm(wr.Imm)
	i := imm.Index()
	for range imm.Count() {
		w := l.ring.Word(i)
		heads = append(heads, simHead{i, w.Ticket()})
		i += w.Run()
	}
	return heads
}

func (e *simEnd) PostRecv(wrs []fabric.RecvWR) (int, error) {
	if e.closed || e.lost {
		return 0, fabric.ErrClosed
	}
	e.recvs += len(wrs)
	return len(wrs), nil
}

// Close ends the connection at this end. Nothing lands here any more; of what is on the
// wire from here some may land yet, as it is now.
func (e *simEnd) Close() error {
	if e.closed {
		return nil
	}
	e.closed, e.acks = true, nil
	if e.lost || e.peer == nil || !e.active {
		e.wire = nil
	} else if e.wire = e.wire[:e.net.w.n(len(e.wire)+1)]; len(e.wire) > 0 {
		e.net.w.count("fabric: on the wire after a close")
	}
	for i := range e.wire {
		e.wire[i].data = append([]byte(nil), e.wire[i].data...)
	}
	return nil
}

// canLand reports whether a write can arrive.
func (e *simEnd) canLand() bool {
	return len(e.wire) > 0 && (e.active || e.closed) && !e.lost && e.peer != nil && e.peer.active && !e.peer.closed && e.peer.recvs > 0
}

// next returns which write arrives next: the oldest, if there is an order.
func (e *simEnd) next() int {
	if w := e.net.w; w.unordered && len(e.wire) > 1 {
		k := w.n(len(e.wire))
		if k > 0 {
			w.count("fabric: write overtakes another")
		}
		return k
	}
	return 0
}

// land lets a write arrive. Its completion comes later.
func (e *simEnd) land() {
	k := e.next()
	s := e.wire[k]
	e.wire = append(e.wire[:k:k], e.wire[k+1:]...)
	w, p := e.net.w, e.peer
	if !e.closed && maphash.Bytes(simSeed, s.data) != s.sum {
		w.fail("%v: bytes of write %d changed on their way: slots of it were used again", e.lane, s.ID)
	}
	off := s.RemoteAddr - p.pd.mr.base
	p.lane.lands(int(off), s.data)
	copy(p.pd.mr.mem[off:], s.data)
	w.log("%v: write %d lands at %v, imm %x", e.lane, s.ID, p.lane, s.Imm)
	if s.Op == fabric.OpWriteImm {
		p.recvs--
		p.cq.queue = append(p.cq.queue, fabric.Completion{Tag: p.attr.Tag, Op: fabric.OpRecvImm, Imm: s.Imm, Len: uint32(len(s.data))})
	}
	if !e.closed {
		at, _ := slices.BinarySearchFunc(e.acks, s.post, func(a simWrite, post uint64) int { return cmp.Compare(a.post, post) })
		e.acks = slices.Insert(e.acks, at, s)
	}
}

// ackable is how many of the writes that have landed are complete: with all before them.
func (e *simEnd) ackable() int {
	if len(e.wire) == 0 {
		return len(e.acks)
	}
	n := 0
	for n < len(e.acks) && e.acks[n].post < e.wire[0].post {
		n++
	}
	return n
}

// ack lets the sender know of what has landed.
func (e *simEnd) ack() {
	w := e.net.w
	for n := 1 + w.n(e.ackable()); n > 0; n-- {
		s := e.acks[0]
		e.acks = e.acks[1:]
		e.stable(&s)
		if s.Flags&fabric.FlagSignaled == 0 {
			continue
		}
		c := fabric.Completion{Tag: e.attr.Tag, ID: s.ID, Op: s.Op}
		e.cq.queue = append(e.cq.queue, c)
		if w.chance(40) {
			w.count("fabric: completion twice")
			e.cq.queue = append(e.cq.queue, c)
		}
	}
}

// stable verifies that the slots of a write are still those of its requests: until its
// completion the device may read them again.
func (e *simEnd) stable(s *simWrite) {
	for _, h := range s.heads {
		if w := e.lane.ring.Word(h.index); w.State() != slots.Taken || w.Ticket() != h.ticket {
			e.net.w.fail("%v: slot %d of write %d, ticket %d, is %v before its completion", e.lane, h.index, s.ID, h.ticket, w)
		}
	}
}

// half lets the first bytes of a write arrive, and no immediate, and loses the connection.
func (e *simEnd) half() {
	s := e.wire[e.next()]
	w, p := e.net.w, e.peer
	n := w.n(len(s.data))
	off := s.RemoteAddr - p.pd.mr.base
	p.lane.lands(int(off), s.data)
	copy(p.pd.mr.mem[off:], s.data[:n])
	w.log("%v: %d bytes of write %d land at %v", e.lane, n, s.ID, p.lane)
	w.count("fabric: half a write")
	e.reset()
}

// reset loses the connection at both ends.
func (e *simEnd) reset() {
	e.lose()
	if e.peer != nil {
		e.peer.lose()
	}
}

// lose ends the connection at this end: what is under way is flushed, whether it has
// landed or not. An end with nothing under way may never hear of it.
func (e *simEnd) lose() {
	if e.closed || e.lost {
		e.wire = nil
		return
	}
	w := e.net.w
	w.log("%v: connection lost, %d on the wire, %d landed", e.lane, len(e.wire), len(e.acks))
	e.lost = true
	if len(e.wire)+len(e.acks) == 0 && w.chance(500) {
		w.count("fabric: silent loss")
		return
	}
	for range e.acks {
		w.count("fabric: landed, completion lost")
	}
	for range e.wire {
		w.count("fabric: flushed")
	}
	ended := append(slices.Clone(e.acks), e.wire...)
	slices.SortFunc(ended, func(a, b simWrite) int { return cmp.Compare(a.post, b.post) })
	for _, s := range ended {
		e.cq.queue = append(e.cq.queue, fabric.Completion{Tag: e.attr.Tag, ID: s.ID, Op: s.Op, Status: fabric.StatusFlushed})
	}
	e.wire, e.acks = nil, nil
	e.cq.queue = append(e.cq.queue, fabric.Completion{Tag: e.attr.Tag, Op: fabric.OpDisconnect, Status: fabric.StatusFlushed})
}

// act does one thing of the fabric.
func (n *simNet) act() bool {
	w := n.w
	keep := n.ends[:0]
	for _, e := range n.ends {
		if !e.closed || len(e.wire) > 0 {
			keep = append(keep, e)
		}
	}
	clear(n.ends[len(keep):])
	n.ends = keep
	if len(n.ends) == 0 {
		return false
	}
	first, did := w.n(len(n.ends)), false
	for k := range n.ends {
		e := n.ends[(first+k)%len(n.ends)]
		if e.peer == nil {
			continue
		}
		if did = e.act() || did; did && !w.calm {
			break
		}
	}
	return did
}

func (e *simEnd) act() bool {
	w := e.net.w
	switch {
	case e.canLand() && !e.closed && w.chance(w.rate.half):
		e.half()
	case e.canLand() && w.chance(w.rate.reset):
		w.count("fabric: reset")
		e.reset()
	case e.canLand() && (e.ackable() == 0 || w.n(3) > 0):
		e.land()
	case e.ackable() > 0:
		e.ack()
	case e.closed && len(e.wire) > 0:
		e.wire = nil // lost on its way
	case !e.closed && !e.lost && e.peer.closed && len(e.peer.wire) == 0:
		e.lose()
	default:
		return false
	}
	return true
}

var (
	_ fabric.Device   = (*simDevice)(nil)
	_ fabric.Endpoint = (*simEnd)(nil)
)
