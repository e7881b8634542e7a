package daemon

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/internal/event"
	"github.com/rdmad/rdmad/internal/handoff"
)

// What a core keeps in the depot besides the node itself (handoff.Node), by kind: the keys, and the
// metadata under them. The kinds are followed by the domain's name, and but for domains by a number.
// A change that the next core would misread changes depot.Version.
const (
	kindDomain = "domain"
	kindMethod = "method" // by its number
	kindWorker = "worker" // by its attach id
	kindRegion = "region" // by its index
	kindLane   = "lane"   // by its id
	// kindOutcast is a process that may not attach, by its process id.
	kindOutcast = "outcast"
)

func domainKey(d string) string { return kindDomain + "/" + d }

func keyOf(kind string, d *domain, n int) string { return fmt.Sprintf("%s/%s/%d", kind, d.name, n) }

// domainMeta comes with the domain's segment and its bell. What it counts goes on, so
// that nothing gets a number that somebody may still know something else by.
type domainMeta struct {
	MethodBits     int    `json:"method_bits"`
	LastID         int    `json:"last_id"`
	LastLane       int    `json:"last_lane"`
	LastGeneration uint32 `json:"last_generation"`
	// Rotation counts the memories that the domain has had. Workers, regions and lanes have it, too: those with another
	// one are of a memory that the domain has no more.
	Rotation int `json:"rotation,omitempty"`
}

type methodMeta struct {
	Service string `json:"service"`
	Method  string `json:"method"`
	ID      uint32 `json:"id"`
	Answer  int    `json:"answer"`
}

// workerMeta comes with the worker's segment, its socket, and its pidfd if the kernel
// has any.
type workerMeta struct {
	Role     attach.Role `json:"role"`
	Name     string      `json:"name"`
	Handlers int         `json:"handlers,omitempty"`
	PID      int         `json:"pid"`
	UID      uint32      `json:"uid"`
	GID      uint32      `json:"gid"`
	ABI      uint32      `json:"abi,omitempty"`
	// Bytes is what it was told that it may hold of slots; nil if an earlier release did not
	// keep that.
	Bytes *int `json:"bytes,omitempty"`
	// Welcomed: it has its welcome.
	Welcomed bool `json:"welcomed,omitempty"`
	// Bye: it has said that it touches its slots no more.
	Bye bool `json:"bye,omitempty"`
	// Serves has a bit for each method that it serves, by number.
	Serves []byte `json:"serves,omitempty"`
	// Withdrawn: it gets no new requests.
	Withdrawn bool `json:"withdrawn,omitempty"`
	// Struck are the errors for which it was disconnected.
	Struck int `json:"struck,omitempty"`
	// Rotation is its domain's.
	Rotation int `json:"rotation,omitempty"`
}

// regionMeta comes with the region's segment.
type regionMeta struct {
	Generation uint32 `json:"generation"`
	Owner      int    `json:"owner"`
	// Size is that of the segment without its header page, Want what the worker asked
	// for with the question Seq.
	Size int    `json:"size"`
	Want int64  `json:"want"`
	Seq  uint64 `json:"seq"`
	// Freed: the worker uses it no more.
	Freed bool `json:"freed,omitempty"`
	// Rotation is its domain's.
	Rotation int `json:"rotation,omitempty"`
}

// The directions of a lane.
const (
	laneOut   = "out"
	laneIn    = "in"
	laneLocal = "local"
)

// laneMeta comes with the lane's segment and its vault.
type laneMeta struct {
	Lane attach.Lane `json:"lane"`
	// Direction is "out" for requests of this node, "in" for those of the peer, and
	// "local" for those of this node to itself.
	Direction string `json:"direction"`
	// Rotation is its domain's.
	Rotation int `json:"rotation,omitempty"`
}

// orphanLook is more than the end of the depot's connection may come before that of the lifeline when the supervisor dies.
const orphanLook = 100 * time.Millisecond

// inVain reports whether an error of the depot is that the supervisor is gone, which is said once, and elsewhere. The core
// itself may have closed the connection, because it ends then.
func (c *conductor) inVain(err error) bool {
	if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, net.ErrClosed) {
		return false
	}
	select {
	case <-c.orphaned:
		return true
	case <-time.After(orphanLook):
		return false
	}
}

// keep puts an item into the depot. If it cannot be kept, the node goes on: what is lost
// is lost at the core's death only.
func (c *conductor) keep(key string, meta any, fds ...int) {
	if err := c.depot.Put(key, meta, fds...); err != nil && !c.inVain(err) {
		event.NotKept.On(&c.log).Err(err).Str("key", key).Msg("not kept for the next core")
	}
}

// keepChange changes the metadata of an item.
func (c *conductor) keepChange(key string, meta any) {
	if err := c.depot.Update(key, meta); err != nil && !c.inVain(err) {
		event.NotKept.On(&c.log).Err(err).Str("key", key).Msg("not kept for the next core")
	}
}

// keepIdentity changes what is kept of the node itself.
func (c *conductor) keepIdentity(change func(*handoff.Node)) {
	c.identifying.Lock()
	defer c.identifying.Unlock()
	change(c.identity)
	c.keepChange(handoff.NodeKey, c.identity)
}

// keepNoMore takes an item out of the depot.
func (c *conductor) keepNoMore(key string) {
	if err := c.depot.Drop(key); err != nil && !c.inVain(err) {
		event.NotDropped.On(&c.log).Err(err).Str("key", key).Msg("not dropped for the next core")
	}
}

// keepNoMore takes an item of the domain out of the depot. What was kept of a retired one
// is not: its keys are those of its successor.
func (d *domain) keepNoMore(key string) {
	if !d.retired {
		d.conductor.keepNoMore(key)
	}
}

// meta and the functions below are called with conductor.mu held, so that changes of an
// item come in order.
func (d *domain) meta() *domainMeta {
	return &domainMeta{MethodBits: d.view.MethodBits, LastID: d.lastID, LastLane: d.lastLane, LastGeneration: d.regions.lastGeneration, Rotation: d.generation}
}

// keepCounts keeps what the domain counts.
func (d *domain) keepCounts() {
	if !d.retired {
		d.conductor.keepChange(domainKey(d.name), d.meta())
	}
}

func (w *worker) meta() *workerMeta {
	return &workerMeta{
		Role:      w.role,
		Name:      w.name,
		Handlers:  w.handlers,
		PID:       w.pid,
		UID:       w.uid,
		GID:       w.gid,
		ABI:       w.abi,
		Bytes:     &w.bytes,
		Welcomed:  w.welcomed,
		Bye:       w.bye,
		Serves:    w.serves,
		Withdrawn: w.withdrawn,
		Struck:    w.struck,
		Rotation:  w.domain.generation,
	}
}

func (d *domain) keepMethod(k methodKey, m *method) {
	d.conductor.keep(keyOf(kindMethod, d, d.view.MethodNumber(m.id)), &methodMeta{Service: k.service, Method: k.method, ID: m.id, Answer: m.answer})
}

// keepWorker keeps a worker with its descriptors.
func (d *domain) keepWorker(w *worker) {
	raw, err := w.conn.Socket().SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			fds := []int{w.seg.FD(), int(fd)}
			if w.pidfd >= 0 {
				fds = append(fds, w.pidfd)
			}
			d.conductor.keep(keyOf(kindWorker, d, w.id), w.meta(), fds...)
		})
	}
	if err != nil {
		event.NotKept.On(&d.conductor.log).Err(err).Int("worker", w.id).Msg("not kept for the next core")
	}
}

// keepWorkerChange keeps what has changed of a worker, if it is kept.
func (w *worker) keepWorkerChange() {
	if d := w.domain; d.workers[w.id] == w && !d.retired {
		d.conductor.keepChange(keyOf(kindWorker, d, w.id), w.meta())
	}
}

func (r *region) meta() *regionMeta {
	return &regionMeta{Generation: r.view.ID.Generation(), Owner: r.owner.id, Size: r.size, Want: r.want, Seq: r.seq, Freed: r.freeing, Rotation: r.domain.generation}
}

func (r *region) key() string { return keyOf(kindRegion, r.domain, int(r.view.ID.Index())) }

// keepLane keeps a lane with its segment and its vault.
func (d *domain) keepLane(l *laneInfo) {
	m := &laneMeta{Lane: l.Lane, Direction: laneOut, Rotation: d.generation}
	switch {
	case l.serves && l.Peer == d.conductor.node:
		m.Direction = laneLocal
	case l.serves:
		m.Direction = laneIn
	}
	d.conductor.keep(keyOf(kindLane, d, int(l.ID)), m, l.seg.FD(), l.vault.FD())
}
