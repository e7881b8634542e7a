package counters

import (
	"hash/fnv"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/rdmad/rdmad/shm"
)

// Version is the version of what the head means. What the rows hold has a schema of its own.
const Version = 1

// magic is "rdmadcnt".
const magic = 0x746e6364616d6472

// Sizes of the parts of the file, and how many rows a reader believes that there are.
const (
	headSize    = 4096
	maxAgents   = 64
	maxLanes    = 4096
	maxServices = 4096
	lineSize    = 64
)

// name is the room for a name, which is shorter and filled up with zeros.
type name [64]byte

func (n *name) set(s string) {
	var all name
	copy(all[:len(all)-1], s)
	*n = all
}

// String returns the name with whatever is not printable replaced: the bytes may be
// anybody's.
func (n *name) String() string {
	s, _, _ := strings.Cut(string(n[:]), "\x00")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// head is the beginning of the file. It is complete when version is not 0.
type head struct {
	version  atomic.Uint64
	magic    uint64
	schema   uint64
	size     uint64
	agents   uint64
	lanes    uint64
	services uint64
	// state is one of the states below.
	state atomic.Uint64
	// started is when the core was, in nanoseconds since 1970. core is its process and born
	// when that began, in ticks of the kernel; pids is the number of its namespace.
	started, core, born, pids, supervisor uint64

	node, program, incarnation, digest name
}

// node are the counters of the node as a whole, at headSize.
type nodeRow struct {
	NodeCounts
	_ [lineSize - 14*8%lineSize]byte
}

// agentRow is what an agent writes.
type agentRow struct {
	// state is an AgentState, beat when the agent's last cycle began, by CLOCK_MONOTONIC.
	state, beat uint64
	_           [lineSize - 16]byte
	counts      AgentCounts
	_           [lineSize - 55*8%lineSize]byte
	cycles      Times
}

// laneRow is what is known and counted of a lane. agent and what is above it are written
// before used, and never again.
type laneRow struct {
	used                    atomic.Uint64
	number, slots, slotSize uint64
	agent                   uint64
	direction               uint64
	_                       [lineSize - 48]byte
	domain, peer, class     name
	lane                    Lane
}

// Lane is the part of a lane's row that its agent writes.
type Lane struct {
	// LaneCounts are the plain counters.
	LaneCounts
	_ [lineSize - 9*8%lineSize]byte
	// Outcomes counts requests by how they ended.
	Outcomes Outcomes
	// GroupSizes are the groups of requests that the lane has sent, or that have arrived.
	GroupSizes Sizes
	// Latency is from when a request was sent, or arrived, until its answer came, or was
	// ready to be sent back. Queue is how long a group that could not be sent at once has
	// waited since the agent saw it.
	Latency Times
	Queue   Times
}

// serviceRow is the same for a method that processes of this node serve.
type serviceRow struct {
	used                    atomic.Uint64
	agent                   uint64
	_                       [lineSize - 16]byte
	domain, service, method name
	counts                  Service
}

// Service is the part of a method's row that its agent writes.
type Service struct {
	// ServiceCounts are the plain counters.
	ServiceCounts
	_ [lineSize - 1*8%lineSize]byte
	// Outcomes counts requests by how they ended.
	Outcomes Outcomes
	// Latency is from the arrival of a request until its answer was ready to be sent. Wait
	// is how long requests waited that no process had room for when they came.
	Latency Times
	Wait    Times
}

// shape is how many rows there are.
type shape struct{ agents, lanes, services int }

// The parts follow each other: head, node, agents, then lanes and services, each with the
// "other" rows of all agents first.
func (s shape) agentsAt() int { return headSize + shm.SizeOf[nodeRow]() }
func (s shape) lanesAt() int  { return s.agentsAt() + s.agents*shm.SizeOf[agentRow]() }
func (s shape) servicesAt() int {
	return s.lanesAt() + (s.agents+s.lanes)*shm.SizeOf[laneRow]()
}
func (s shape) size() int {
	return s.servicesAt() + (s.agents+s.services)*shm.SizeOf[serviceRow]()
}

func headOf(mem []byte) *head    { return shm.View[head](mem, 0) }
func nodeOf(mem []byte) *nodeRow { return shm.View[nodeRow](mem, headSize) }

func (s shape) agent(mem []byte, i int) *agentRow {
	return shm.View[agentRow](mem, s.agentsAt()+i*shm.SizeOf[agentRow]())
}

func (s shape) lane(mem []byte, i int) *laneRow {
	return shm.View[laneRow](mem, s.lanesAt()+i*shm.SizeOf[laneRow]())
}

func (s shape) service(mem []byte, i int) *serviceRow {
	return shm.View[serviceRow](mem, s.servicesAt()+i*shm.SizeOf[serviceRow]())
}

// schema tells whether two programs mean the same by the same bytes: the names and the
// places of everything.
var schema = func() uint64 {
	h := fnv.New64a()
	for _, t := range []reflect.Type{reflect.TypeFor[head](), reflect.TypeFor[nodeRow](), reflect.TypeFor[agentRow](), reflect.TypeFor[laneRow](), reflect.TypeFor[serviceRow]()} {
		describe(t, func(s string) { _, _ = h.Write([]byte(s)) })
	}
	return h.Sum64()
}()

// describe writes the fields of a type, their names in JSON if they have them, and types.
func describe(t reflect.Type, write func(string)) {
	write("{")
	for f := range t.Fields() {
		write(f.Name + " " + f.Tag.Get("json") + " " + f.Type.String() + ";")
		if f.Type.Kind() == reflect.Struct {
			describe(f.Type, write)
		}
	}
	write("}")
}
