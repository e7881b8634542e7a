package counters

// Agent is what an agent writes. Everything belongs to its thread.
type Agent struct {
	// Counts are its counters.
	Counts *AgentCounts
	// Cycles are the times from the beginning of a cycle to that of the next, if there was
	// no sleep in between. They include the time in which the agent had no processor.
	Cycles *Times
	// OtherLane and OtherService are its rows for all that have none of their own.
	OtherLane    *Lane
	OtherService *Service

	state, beat *uint64
}

// AgentState is what an agent does.
type AgentState uint64

// The states of an agent.
const (
	// AgentNew: its thread has not begun.
	AgentNew AgentState = iota
	// AgentWorking: it is in a cycle, or between two of them.
	AgentWorking
	// AgentAsleep: it waits until there is something to do, without bound.
	AgentAsleep
	// AgentEnded: its thread has ended.
	AgentEnded
)

// String returns the state as it is shown.
func (s AgentState) String() string {
	if s > AgentEnded {
		return "unknown"
	}
	return [...]string{"new", "working", "asleep", "ended"}[s]
}

// NewAgent returns an Agent that counts for nobody, in ordinary memory.
func NewAgent() *Agent {
	row := new(agentRow)
	return &Agent{Counts: &row.counts, Cycles: &row.cycles, state: &row.state, beat: &row.beat, OtherLane: new(Lane), OtherService: new(Service)}
}

// Beat notes that a cycle begins at the given time by CLOCK_MONOTONIC, in nanoseconds.
func (a *Agent) Beat(now int64) { *a.state, *a.beat = uint64(AgentWorking), uint64(now) }

// Become notes another state.
func (a *Agent) Become(s AgentState) { *a.state = uint64(s) }

// Began returns the time of the last Beat.
func (a *Agent) Began() int64 { return int64(*a.beat) }
