package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/rdmad/rdmad/groupsend"
	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/faultpoint"
	"github.com/rdmad/rdmad/internal/peerproto"
	"github.com/rdmad/rdmad/slots"
)

// sendDepth is how many writes of a lane may be on their way in one direction.
const sendDepth = 256

// recvDepth is how many immediates a lane can take before receives are
// refilled; the peer waits when they are used up.
const recvDepth = 512

// LaneEndpoint is the fabric side of a lane's end, groups out and immediates in: this node's endpoint, with what belongs
// to it.
type LaneEndpoint struct {
	tag      uint64
	pd       fabric.ProtectionDomain // of this lane alone: the peer reaches nothing else
	Endpoint fabric.Endpoint
	MR       fabric.MemoryRegion
	remote   fabric.RemoteKey
	// Opening says which connection of the lane this is.
	Opening Opening
	wrs     []fabric.SendWR
	recvs   []fabric.RecvWR
	// next is the id of the next work request, done the last one known to be complete
	// (that of an ActiveEnd is the one after), posted the last one the provider has taken.
	next, posted, done uint64
	spent              int // receives used since the last refill
	// pinned is where the bytes of MR are counted, all of them; nil for nowhere.
	pinned *uint64
	bytes  int
	// unordered: writes may arrive in any order. A completion says that those up to its own
	// have arrived, on every fabric.
	unordered bool
	// inline is how many bytes a write carries itself, -1 for none.
	inline int
	// count is the agent's from start to close. Before, nothing is posted but receives.
	count *counters.AgentCounts
}

// NewLaneEndpoint makes an unconnected endpoint for a ring, with its first receives
// posted: the peer may send before the agent has seen the endpoint. The peer will
// reach the ring's slots and nothing else. peer is the node at the other end. It is called on any goroutine.
func NewLaneEndpoint(dev fabric.Device, cq fabric.CQ, tag uint64, ring *slots.Ring, peer string) (*LaneEndpoint, error) {
	p := &LaneEndpoint{
		tag: tag, next: 1, unordered: !dev.Caps().OrderedWrites,
		wrs:   make([]fabric.SendWR, 0, sendDepth),
		recvs: make([]fabric.RecvWR, recvDepth),
	}
	var err error
	if p.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	if p.MR, err = p.pd.Register(ring.Slots(), fabric.AccessRemoteWrite); err != nil {
		return nil, errors.Join(err, p.Release())
	}
	p.Endpoint, err = p.pd.CreateEndpoint(fabric.EndpointAttr{CQ: cq, Tag: tag, SendDepth: sendDepth, RecvDepth: recvDepth, Peer: peer})
	if err != nil {
		return nil, errors.Join(err, p.Release())
	}
	p.inline = -1
	if in, ok := p.Endpoint.(fabric.Inliner); ok {
		p.inline = in.InlineLimit()
	}
	if _, err := p.Endpoint.PostRecv(p.recvs); err != nil {
		return nil, errors.Join(err, p.Release())
	}
	return p, nil
}

// Release closes what has been made, the last first.
func (p *LaneEndpoint) Release() error {
	var errs []error
	if p.pinned != nil {
		atomic.AddUint64(p.pinned, -uint64(p.bytes))
		p.pinned = nil
	}
	if p.Endpoint != nil {
		errs = append(errs, p.Endpoint.Close())
	}
	if p.MR != nil {
		errs = append(errs, p.MR.Close())
	}
	return errors.Join(append(errs, p.pd.Close())...)
}

// Pin counts the memory that is registered, until Release.
func (p *LaneEndpoint) Pin(sum *uint64, bytes int) {
	p.pinned, p.bytes = sum, bytes
	atomic.AddUint64(sum, uint64(bytes))
}

// start lets completions flow to e.
func (p *LaneEndpoint) start(a *Agent, e connectionEnd) error {
	a.ends[p.tag], p.count = e, a.Count
	return p.Endpoint.Activate()
}

// close ends the connection: nothing of the peer lands in the slots after this,
// and no completion reaches the lane.
func (p *LaneEndpoint) close(a *Agent) {
	if p.count != nil {
		p.count.WritesOutstanding -= p.posted - p.done
	}
	delete(a.ends, p.tag)
	if err := p.Release(); err != nil {
		event.EndpointClose.On(&a.log).Err(err).Msg("closing a lane's endpoint")
	}
}

// cause says why a connection ended, in the provider's words if it has any.
func cause(ep fabric.Endpoint, c *fabric.Completion) error {
	if e, ok := ep.(fabric.Explainer); ok {
		return e.Explain(*c)
	}
	return c.Status.Err()
}

// room is how many more writes may be posted now.
func (p *LaneEndpoint) room() int { return sendDepth - int(p.next-1-p.done) }

// underWay reports whether there are writes that are not known to be complete, also such as are not posted yet.
func (p *LaneEndpoint) underWay() bool { return p.done+1 < p.next }

// add queues the last write of a group, with its immediate, and returns its size in
// bytes.
func (p *LaneEndpoint) add(g groupsend.Group) int {
	p.write(fabric.OpWriteImm, uint32(g.Imm()), g.From, g.Bytes)
	return g.Bytes
}

// part queues another write of a group and returns its size in bytes.
func (p *LaneEndpoint) part(from, bytes int) int {
	p.write(fabric.OpWrite, 0, from, bytes)
	return bytes
}

func (p *LaneEndpoint) write(op fabric.Op, imm uint32, from, bytes int) {
	if bytes <= p.inline {
		p.count.WritesInline++
	}
	p.wrs = append(p.wrs, fabric.SendWR{
		ID: p.next, Op: op, Imm: imm,
		Local:      fabric.Local{Region: p.MR, Offset: uint64(from), Len: uint32(bytes)},
		RemoteAddr: p.remote.Addr + uint64(from), RemoteKey: p.remote.Key,
	})
	p.next++
}

// flush posts what add has queued with one call, the last work request
// signaled, so that its completion covers the others.
func (p *LaneEndpoint) flush() error {
	if len(p.wrs) == 0 {
		return nil
	}
	p.wrs[len(p.wrs)-1].Flags = fabric.FlagSignaled
	faultpoint.Here("post.before")
	n, err := p.Endpoint.PostSend(p.wrs)
	faultpoint.Here("post.after")
	p.posted += uint64(n)
	p.count.WritesPosted += uint64(n)
	p.count.WritesOutstanding += uint64(n)
	p.wrs = p.wrs[:copy(p.wrs, p.wrs[n:])]
	if errors.Is(err, fabric.ErrQueueFull) {
		return nil // the rest goes out when completions have made room
	}
	return p.ended(err)
}

// complete notes that the writes up to id are done.
func (p *LaneEndpoint) complete(id uint64) {
	p.count.WritesOutstanding -= id - p.done
	p.done = id
}

// errReceives says that the provider counts wrongly; nothing that a peer sends can do it.
var errReceives = errors.New("the fabric has completed more receives than were posted")

// received notes a used receive and refills in batches.
func (p *LaneEndpoint) received() error {
	if p.spent == len(p.recvs) {
		return errReceives
	}
	if p.spent++; p.spent < recvDepth/2 {
		return nil
	}
	n, err := p.Endpoint.PostRecv(p.recvs[:p.spent])
	p.spent -= n
	if errors.Is(err, fabric.ErrQueueFull) {
		return nil
	}
	return p.ended(err)
}

// ended adds to the error of a post why the connection has ended, if it has: the completion that would say so is still to come, and the
// lane does not wait for it. That the peer has closed its end is no failure of the fabric.
func (p *LaneEndpoint) ended(err error) error {
	if e, ok := p.Endpoint.(fabric.Explainer); ok && errors.Is(err, fabric.ErrClosed) {
		return fmt.Errorf("%w: %w", err, e.Explain(fabric.Completion{Op: fabric.OpDisconnect, Status: fabric.StatusFlushed}))
	}
	return err
}

// cycleGroups bounds the groups that a local lane handles per cycle.
const cycleGroups = 64

// groupBudget is how many writes a lane's end may post now. p is nil for a local
// lane, and for one that is down.
func groupBudget(p *LaneEndpoint, local bool) int {
	switch {
	case local:
		return cycleGroups
	case p == nil:
		return 0
	}
	return max(0, p.room())
}

// Connect joins the endpoint with the peer's, before an agent has it, on any goroutine: it waits for the peer.
func (p *LaneEndpoint) Connect(ctx context.Context, peer *peerproto.Lane, ring *slots.Ring, role fabric.Role) error {
	if peer == nil || len(peer.Address) > fabric.MaxAddress || peer.Key.Len < uint64(len(ring.Slots())) {
		return fmt.Errorf("%w: a lane without a usable address or memory", peerproto.ErrFrame)
	}
	p.remote = peer.Key
	return p.Endpoint.Connect(ctx, peer.Address, role)
}

// Discard closes an endpoint that no lane has, on the agent's thread: it may be known
// to the agent's completion queue. It is for other goroutines than the agent's.
func (p *LaneEndpoint) Discard(a *Agent) {
	a.Commands.Call(func() { _ = p.Release() })
}
