// Package counted shows the file of counters of a daemon, which need not run.
package counted

import (
	"time"

	"github.com/rdmad/rdmad/internal/counters"
	"github.com/rdmad/rdmad/internal/status"
)

// View is what there is to see of a file of counters, as JSON.
type View struct {
	Node        string `json:"node"`
	Version     string `json:"version"`
	Incarnation string `json:"incarnation"`
	// Digest is that of the configuration.
	Digest     string    `json:"config_digest"`
	Core       int       `json:"core_pid"`
	Supervisor int       `json:"supervisor_pid"`
	Started    time.Time `json:"started"`
	// State is what the core says of itself: "running", "draining" or "stopped". Process
	// is what has become of it: "alive", "halted", "dead" or "unknown".
	State   string `json:"state"`
	Process string `json:"process"`
	// Stuck are the agents that do not come to the end of a cycle.
	Stuck    []int             `json:"stuck_agents"`
	Counters map[string]uint64 `json:"counters"`
	Agents   []Agent           `json:"agents"`
	Lanes    []Lane            `json:"lanes"`
	Services []Service         `json:"services"`
}

// Agent is what an agent has counted.
type Agent struct {
	Number int    `json:"number"`
	State  string `json:"state"`
	// CycleS is for how long it has been in its cycle, in seconds; 0 if it sleeps.
	CycleS   float64           `json:"cycle_s"`
	Cycles   status.Times      `json:"cycles"`
	Counters map[string]uint64 `json:"counters"`
}

// Lane is what was counted of a lane.
type Lane struct {
	Domain    string `json:"domain"`
	Peer      string `json:"peer"`
	Class     string `json:"class"`
	Number    int    `json:"number"`
	Direction string `json:"direction"`
	// Other: all lanes of the agent that have no row of their own, together.
	Other      bool              `json:"other"`
	Agent      int               `json:"agent"`
	Slots      int               `json:"slots"`
	SlotSize   int               `json:"slot_size"`
	Counters   map[string]uint64 `json:"counters"`
	Outcomes   map[string]uint64 `json:"outcomes"`
	GroupSizes status.Sizes      `json:"group_sizes"`
	Latency    status.Times      `json:"latency"`
	Queue      status.Times      `json:"queue"`
}

// Service is what was counted of a method that the node serves.
type Service struct {
	Domain  string `json:"domain"`
	Service string `json:"service"`
	Method  string `json:"method"`
	// Other: all methods of the agent that have no row of their own, together.
	Other    bool              `json:"other"`
	Agent    int               `json:"agent"`
	Counters map[string]uint64 `json:"counters"`
	Outcomes map[string]uint64 `json:"outcomes"`
	Latency  status.Times      `json:"latency"`
	Wait     status.Times      `json:"wait"`
}

// stuckAfter is how long a cycle may last.
const stuckAfter = 2 * time.Second

// Of makes a view of a snapshot.
func Of(s *counters.Snapshot) *View {
	process := s.Process()
	v := &View{
		Node: s.Node, Version: s.Program, Incarnation: s.Incarnation, Digest: s.Digest, Core: s.Core, Supervisor: s.Supervisor, Started: s.Started,
		State: s.State.String(), Process: process.String(), Stuck: []int{}, Counters: values(&s.Counts), Agents: []Agent{}, Lanes: []Lane{}, Services: []Service{},
	}
	for i := range s.Agents {
		a := &s.Agents[i]
		agent := Agent{Number: i, State: a.State.String(), Cycles: status.TimesOf(&a.Cycles), Counters: values(&a.Counts)}
		// The clock goes on, and means nothing of a process that does not.
		if a.State == counters.AgentWorking && process == counters.ProcessAlive {
			age := time.Duration(max(0, s.Now-a.Beat))
			if agent.CycleS = age.Seconds(); age > stuckAfter {
				v.Stuck = append(v.Stuck, i)
			}
		}
		v.Agents = append(v.Agents, agent)
	}
	for i := range s.Lanes {
		l := &s.Lanes[i]
		v.Lanes = append(v.Lanes, Lane{
			Domain: l.Domain, Peer: l.Peer, Class: l.Class, Number: l.Number, Direction: l.Direction.String(), Other: l.Other,
			Agent: l.Agent, Slots: l.Slots, SlotSize: l.SlotSize, Counters: values(&l.LaneCounts), Outcomes: l.Outcomes.Map(),
			GroupSizes: status.SizesOf(&l.GroupSizes), Latency: status.TimesOf(&l.Latency), Queue: status.TimesOf(&l.Queue),
		})
	}
	for i := range s.Services {
		m := &s.Services[i]
		v.Services = append(v.Services, Service{
			Domain: m.Domain, Service: m.ServiceID.Service, Method: m.Method, Other: m.Other, Agent: m.Agent,
			Counters: values(&m.ServiceCounts), Outcomes: m.Outcomes.Map(), Latency: status.TimesOf(&m.Latency), Wait: status.TimesOf(&m.Wait),
		})
	}
	return v
}

func values[T any](s *T) map[string]uint64 {
	m := map[string]uint64{}
	counters.AddTo(m, s)
	return m
}
