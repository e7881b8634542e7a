package doctor

import (
	"fmt"

	"github.com/rdmad/rdmad/internal/config"
	"github.com/rdmad/rdmad/internal/scaling"
	"github.com/rdmad/rdmad/internal/vault"
	"github.com/rdmad/rdmad/slots"
)

const (
	// queueBytes is what the queues of a lane's queue pair take besides its
	// slots: a generous estimate for 256 sends with inline data, 512 receives
	// and their completions. Devices differ.
	queueBytes = 256 << 10
	// baseFiles is what the daemon needs anyway: listeners, bells, peers.
	baseFiles = 128
	// baseThreads is what the core needs besides its agents.
	baseThreads = 64
	// laneObjects is how many objects of the device a lane takes: a protection
	// domain, a memory region and a queue pair.
	laneObjects = 3
	// agentObjects is how many an agent takes: a completion queue and its
	// channel.
	agentObjects = 2
)

// hugepage is the size of the pages that segments are made of, in bytes.
const hugepage = 2 << 20

// plan is what a node needs when every peer uses every domain and class, and has as
// many lanes of each as this node.
type plan struct {
	peers, domains, classes, parallel int
	// lanes go to peers and come from them; local ones are not counted.
	lanes int
	// pinned is how many bytes of slots and queues the fabric locks in memory.
	pinned uint64
	// segments is how many bytes of shared memory lanes take, with local ones, rings and
	// vaults, and hugepages how many huge pages if rings are made of them.
	segments, hugepages uint64
	files, threads      int
	objects             int
}

func planOf(c *config.Config) plan {
	p := plan{peers: len(c.Peers), domains: len(c.Domains), classes: len(c.Classes), parallel: c.Lanes.PerPeer}
	p.lanes = 2 * p.peers * p.domains * p.classes * p.parallel
	rings := uint64(p.parallel * p.domains * (2*p.peers + 1)) // of each class
	for _, class := range c.Classes {
		size := segmentSize(class.SlotSize, class.Slots)
		p.pinned += uint64(2*p.peers*p.domains*p.parallel) * (uint64(class.SlotSize)*uint64(class.Slots) + queueBytes)
		p.segments += rings * (size + uint64(vault.Size(class.Slots)))
		p.hugepages += rings * pagesOf(size)
	}
	// Of the two processes of a daemon, to which the limit applies, the core has more.
	p.files = baseFiles + scaling.LaneCoreFDs*(p.lanes+p.domains*p.classes*p.parallel) + scaling.WorkerCoreFDs*c.Limits.Workers*p.domains
	p.threads = baseThreads + c.Agent.Count
	p.objects = laneObjects*p.lanes + agentObjects*c.Agent.Count
	return p
}

// String says how the numbers come about.
func (p plan) String() string {
	each := ""
	if p.parallel > 1 {
		each = plural(p.parallel, "lane") + " x "
	}
	return fmt.Sprintf("%s x %s x %s x %s2 directions", plural(p.peers, "peer"), plural(p.domains, "domain"), plural(p.classes, "ring"), each)
}

// segmentSize is the size of a lane's segment.
func segmentSize(slotSize, n int) uint64 {
	return uint64(slots.Geometry{SlotSize: slotSize, Slots: n, MaxRun: 1}.SegmentSize())
}

// pagesOf is how many huge pages hold size bytes.
func pagesOf(size uint64) uint64 { return (size + hugepage - 1) / hugepage }

// bytesText prints a number of bytes with the unit that people use for memory.
func bytesText(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}
