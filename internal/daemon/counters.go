package daemon

// counters are what an agent counts, on its own thread, without atomics: status
// reads them by a command. The JSON names are documented in docs/protocol.md.
type counters struct {
	RequestGroups         uint64 `json:"request_groups"`
	RequestsSent          uint64 `json:"requests_sent"`
	RequestBytes          uint64 `json:"request_bytes"`
	AnswerGroups          uint64 `json:"answer_groups"`
	AnswersSent           uint64 `json:"answers_sent"`
	AnswerBytes           uint64 `json:"answer_bytes"`
	RequestGroupsReceived uint64 `json:"request_groups_received"`
	RequestsReceived      uint64 `json:"requests_received"`
	AnswerGroupsReceived  uint64 `json:"answer_groups_received"`
	AnswersReceived       uint64 `json:"answers_received"`
	LocalRequests         uint64 `json:"local_requests"`
	OneWayDone            uint64 `json:"oneway_done"`
	OneWayFailed          uint64 `json:"oneway_failed"`
	Refused               uint64 `json:"refused"`
	Queued                uint64 `json:"queued"`
	Redispatched          uint64 `json:"redispatched"`
	NotExecuted           uint64 `json:"not_executed"`
	MaybeExecuted         uint64 `json:"maybe_executed"`
	Orphans               uint64 `json:"orphans"`
	Swept                 uint64 `json:"swept_slots"`
	ProtocolErrors        uint64 `json:"protocol_errors"`
	LaneFailures          uint64 `json:"lane_failures"`
	RegionOps             uint64 `json:"region_ops"`
	RegionOpsFailed       uint64 `json:"region_ops_failed"`
	RegionBytes           uint64 `json:"region_bytes"`
	RegionLinkFailures    uint64 `json:"region_link_failures"`
	Wakes                 uint64 `json:"wakes"`
	AgentCycles           uint64 `json:"agent_cycles"`
	AgentSleeps           uint64 `json:"agent_sleeps"`
}
