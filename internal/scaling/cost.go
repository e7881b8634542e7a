package scaling

import (
	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

// What the core keeps besides shared memory, in bytes, rounded up. The rest of a cost is
// computed from the layouts.
const (
	// slotPrivate is for each slot of either end of a lane: the journal's entry or the
	// record, the mark of a covered slot, and the words of the last look.
	slotPrivate = 112
	// lanePrivate is for each end of a lane: what it counts by attach id (slots.MaxOwner),
	// and the queues of its endpoint.
	lanePrivate = 96 << 10
	// WorkerPrivate is what the daemon keeps for each attached worker besides its segment: a
	// goroutine, its connection, what the agent knows of it, and the supervisor's note of it.
	WorkerPrivate = 24 << 10
	// linkPrivate is for each peer without a lane.
	linkPrivate = 64 << 10
)

// Worker is the daemon's memory for an attached worker that has nothing under way, in
// bytes: its segment and what the daemon's processes keep. The segment counts once,
// although the worker maps it too.
func Worker() int { return slots.WorkerSegmentSize + WorkerPrivate }

const (
	// WorkerCoreFDs are the descriptors of a worker in the core: its socket, its segment, its pidfd and, of a client, its pager.
	WorkerCoreFDs = 4
	// WorkerFDs are those and the copies of the first three in the supervisor.
	WorkerFDs = WorkerCoreFDs + 3
)

// Lane is what one end of a lane of a geometry costs.
type Lane struct {
	// Ring is the shared segment, Pinned the part of it that is registered with the
	// fabric, Vault the daemon's own shared memory, Private the rest, all in bytes.
	Ring, Pinned, Vault, Private int
}

// Total is the memory of the end of the lane in bytes.
func (l Lane) Total() int { return l.Ring + l.Vault + l.Private }

// LaneOf returns what one end of a lane of the class costs.
func LaneOf(c config.Class) Lane {
	g := slots.Geometry{SlotSize: c.SlotSize, Slots: c.Slots, MaxRun: c.MaxRun}
	return Lane{Ring: g.SegmentSize(), Pinned: g.SlotBytes(), Vault: vault.Size(c.Slots), Private: lanePrivate + slotPrivate*c.Slots}
}

// Lanes returns what one direction to or from a peer costs: a lane of each class, and
// lanes.per_peer of them.
func Lanes(c *config.Config) (sum Lane, n int) {
	for _, class := range c.Classes {
		l := LaneOf(class)
		k := c.Lanes.PerPeer
		sum.Ring += k * l.Ring
		sum.Pinned += k * l.Pinned
		sum.Vault += k * l.Vault
		sum.Private += k * l.Private
		n += k
	}
	return sum, n
}

// Node is what a node costs.
type Node struct {
	Workers, Lanes, Links int // bytes
	Pinned                int // bytes, a part of Lanes
	QPs, FDs              int
}

// Total is the memory in bytes.
func (n Node) Total() int { return n.Workers + n.Lanes + n.Links }

// Load is what a node has to do with.
type Load struct {
	// Workers are attached. Peers are configured, and have links. Calls is how many peers
	// one domain of this node calls, Called how many have one that calls this node.
	Workers, Peers, Calls, Called int
}

// Of computes the cost of a node.
func Of(c *config.Config, l Load) Node {
	way, lanes := Lanes(c)
	ways := l.Calls + l.Called
	return Node{
		Workers: l.Workers * Worker(), Links: l.Peers * linkPrivate,
		Lanes: ways * way.Total(), Pinned: ways * way.Pinned, QPs: ways * lanes,
		// A lane's ring and vault are in the core and in the supervisor, its connection
		// in the core.
		FDs: l.Workers*WorkerFDs + l.Peers + ways*lanes*LaneFDs,
	}
}
