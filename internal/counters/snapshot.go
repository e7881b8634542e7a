package counters

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmad/rdmad/shm"
)

// State is what a core is doing, by its own word.
type State uint64

// The states of a core.
const (
	// Running: it serves.
	Running State = 1 + iota
	// Draining: it finishes what is under way.
	Draining
	// Stopped: it has ended in an orderly way.
	Stopped
)

// String returns the state as it is shown.
func (s State) String() string {
	if s < Running || s > Stopped {
		return "unknown"
	}
	return [...]string{"running", "draining", "stopped"}[s-1]
}

// ErrDamaged is returned for a file that is not one of counters, or a damaged one.
var ErrDamaged = errors.New("counters: not a file of counters, or a damaged one")

// VersionError is returned for a file whose layout is not this program's.
type VersionError struct {
	// Version and Schema are the file's.
	Version, Schema uint64
	// Program is the version of the daemon that made it, if it says so.
	Program string
}

// Error says which versions there are.
func (e *VersionError) Error() string {
	by := ""
	if e.Program != "" {
		by = ", made by rdmad " + e.Program
	}
	return fmt.Sprintf("counters: the file has layout %d.%08x%s, this program reads %d.%08x", e.Version, uint32(e.Schema), by, Version, uint32(schema))
}

// Snapshot is a copy of a file. Values that belong together may be of different moments.
type Snapshot struct {
	// Identity says whose it is, Core is the core's process id.
	Identity
	Core int
	// State is what the core says that it does. Process is whether it still can.
	State   State
	process process
	// Now is the time by CLOCK_MONOTONIC, in nanoseconds, when it was taken.
	Now int64
	// Counts are those of the node.
	Counts NodeCounts
	// Agents are in the order of their numbers, lanes and services in the order in which
	// they came up, after the "other" rows of all agents that have counted something.
	Agents   []AgentSnapshot
	Lanes    []LaneSnapshot
	Services []ServiceSnapshot
}

// AgentSnapshot is what an agent has counted.
type AgentSnapshot struct {
	// State is what it does, Beat when its last cycle began, by CLOCK_MONOTONIC.
	State AgentState
	Beat  int64
	// Counts are its counters, Cycles the times of its cycles.
	Counts AgentCounts
	Cycles Times
}

// LaneSnapshot is what was counted of a lane.
type LaneSnapshot struct {
	LaneID
	// Other: it stands for all lanes of the agent without a row. It has no names then.
	Other bool
	// Agent is the number of the lane's agent, Slots how many its ring has, of SlotSize bytes.
	Agent, Slots, SlotSize int
	Lane
}

// ServiceSnapshot is what was counted of a method.
type ServiceSnapshot struct {
	ServiceID
	// Other: it stands for all methods without a row.
	Other bool
	// Agent is the number of the agent of the method's domain.
	Agent int
	Service
}

// Sum returns the counters of all agents together.
func (s *Snapshot) Sum() (m map[string]uint64) {
	m = make(map[string]uint64)
	for i := range s.Agents {
		AddTo(m, &s.Agents[i].Counts)
	}
	return m
}

// checkHead returns how many rows a file has whose head is in mem, by its own word but
// within bounds.
func checkHead(mem []byte) (s shape, err error) {
	if len(mem) < headSize {
		return s, fmt.Errorf("%w: %d bytes", ErrDamaged, len(mem))
	}
	h := headOf(mem)
	// SYNC POINT (counters ready): pairs with newFile.
	switch version := h.version.Load(); {
	case h.magic != magic || version == 0:
		return s, fmt.Errorf("%w: it does not begin like one", ErrDamaged)
	case version != Version:
		return s, &VersionError{Version: version}
	case h.schema != schema:
		return s, &VersionError{Version: version, Schema: h.schema, Program: h.program.String()}
	}
	if h.agents < 1 || h.agents > maxAgents || h.lanes > maxLanes || h.services > maxServices {
		return s, fmt.Errorf("%w: %d agents, %d lanes, %d services", ErrDamaged, h.agents, h.lanes, h.services)
	}
	s = shape{int(h.agents), int(h.lanes), int(h.services)}
	if h.size != uint64(s.size()) {
		return s, fmt.Errorf("%w: it says that it has %d bytes, want %d", ErrDamaged, h.size, s.size())
	}
	return s, nil
}

// decode reads a copy that nobody else writes.
func decode(mem []byte) (*Snapshot, error) {
	shape, err := checkHead(mem)
	if err != nil {
		return nil, err
	}
	if len(mem) < shape.size() {
		return nil, fmt.Errorf("%w: %d bytes, want %d", ErrDamaged, len(mem), shape.size())
	}
	h := headOf(mem)
	s := &Snapshot{
		Identity: Identity{Node: h.node.String(), Program: h.program.String(), Incarnation: h.incarnation.String(), Digest: h.digest.String(),
			Supervisor: int(h.supervisor), Started: time.Unix(0, int64(h.started))},
		Core: int(h.core), State: State(h.state.Load()), Now: shm.Nanotime(),
		Counts:  nodeOf(mem).NodeCounts,
		process: process{pid: h.core, born: h.born, namespace: h.pids},
	}
	for i := range shape.agents {
		a := shape.agent(mem, i)
		s.Agents = append(s.Agents, AgentSnapshot{State: AgentState(a.state), Beat: int64(a.beat), Counts: a.counts, Cycles: a.cycles})
	}
	for i := range shape.agents + shape.lanes {
		l := shape.lane(mem, i)
		if l.agent >= h.agents {
			return nil, fmt.Errorf("%w: a lane of agent %d", ErrDamaged, l.agent)
		}
		if l.used.Load() == 0 || i < shape.agents && l.lane == (Lane{}) {
			continue
		}
		s.Lanes = append(s.Lanes, LaneSnapshot{
			LaneID: LaneID{Domain: l.domain.String(), Peer: l.peer.String(), Class: l.class.String(), Number: int(l.number), Direction: Direction(l.direction)},
			Other:  i < shape.agents, Agent: int(l.agent), Slots: int(l.slots), SlotSize: int(l.slotSize), Lane: l.lane,
		})
	}
	for i := range shape.agents + shape.services {
		v := shape.service(mem, i)
		if v.agent >= h.agents {
			return nil, fmt.Errorf("%w: a service of agent %d", ErrDamaged, v.agent)
		}
		if v.used.Load() == 0 || i < shape.agents && v.counts == (Service{}) {
			continue
		}
		s.Services = append(s.Services, ServiceSnapshot{
			ServiceID: ServiceID{Domain: v.domain.String(), Service: v.service.String(), Method: v.method.String()},
			Other:     i < shape.agents, Agent: int(v.agent), Service: v.counts,
		})
	}
	return s, nil
}
