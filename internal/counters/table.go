package counters

// The structs of this file are stored as they are: fields are 64-bit words, in this
// order. Whoever changes them changes the layout, which readers notice by its schema.

// AgentCounts is what an agent counts. The names are those of the status.
type AgentCounts struct {
	RequestGroups         uint64 `json:"request_groups" unit:"groups" help:"Groups of requests sent to peers."`
	RequestsSent          uint64 `json:"requests_sent" unit:"messages" help:"Requests sent to peers."`
	RequestBytes          uint64 `json:"request_bytes" unit:"bytes" help:"Size of the writes that carried requests to peers."`
	AnswerGroups          uint64 `json:"answer_groups" unit:"groups" help:"Groups of answers sent to peers."`
	GroupsDelayed         uint64 `json:"groups_delayed" unit:"groups" help:"Groups that were held back so that they could grow (group_send.max_group_delay)."`
	AnswersSent           uint64 `json:"answers_sent" unit:"messages" help:"Answers sent to peers."`
	AnswerBytes           uint64 `json:"answer_bytes" unit:"bytes" help:"Size of the writes that carried answers to peers."`
	RequestGroupsReceived uint64 `json:"request_groups_received" unit:"groups" help:"Groups of requests that came from peers."`
	RequestsReceived      uint64 `json:"requests_received" unit:"messages" help:"Requests that came from peers or from processes of this node for services of this node."`
	AnswerGroupsReceived  uint64 `json:"answer_groups_received" unit:"groups" help:"Groups of answers that came from peers."`
	AnswersReceived       uint64 `json:"answers_received" unit:"messages" help:"Answers that came from peers or from services of this node."`
	LocalRequests         uint64 `json:"local_requests" unit:"messages" help:"Requests of processes of this node to services of this node."`
	OneWayDone            uint64 `json:"oneway_done" unit:"messages" help:"One-way messages that have their outcome."`
	OneWayFailed          uint64 `json:"oneway_failed" unit:"messages" help:"One-way messages whose outcome is an error."`
	Refused               uint64 `json:"refused" unit:"messages" help:"Requests that this daemon answered with an error itself, at either end."`
	Cancelled             uint64 `json:"cancelled" unit:"messages" help:"Requests dropped because their caller has given them up."`
	Forsaken              uint64 `json:"forsaken" unit:"messages" help:"Requests dropped because their caller is gone."`
	OverLimit             uint64 `json:"over_limit" unit:"messages" help:"Requests refused because their process had more slots than it may have."`
	Queued                uint64 `json:"queued" unit:"messages" help:"Requests that had to wait because no process of their service had room, or for their caller's turn."`
	Redispatched          uint64 `json:"redispatched" unit:"messages" help:"Requests given to another process because the first one was gone before it had started."`
	NotExecuted           uint64 `json:"not_executed" unit:"messages" help:"Requests of this node that this daemon ended as not executed."`
	MaybeExecuted         uint64 `json:"maybe_executed" unit:"messages" help:"Requests that this daemon ended as perhaps executed."`
	Orphans               uint64 `json:"orphans" unit:"messages" help:"Answers dropped because their caller is gone."`
	Swept                 uint64 `json:"swept_slots" unit:"slots" help:"Slots freed because their process died while it held them."`
	SpilledAnswers        uint64 `json:"spilled_answers" unit:"messages" help:"Answers moved out of their slots because their process did not take them."`
	SpilledBytes          uint64 `json:"spilled_bytes" unit:"bytes" help:"Size of the answers that were moved out of their slots."`
	SpillFailures         uint64 `json:"spill_failures" unit:"failures" help:"Times that answers could not be moved out of their slots."`
	SlowWorkers           uint64 `json:"slow_workers" unit:"workers" help:"Workers disconnected because they left too many answers unread."`
	ProtocolErrors        uint64 `json:"protocol_errors" unit:"errors" help:"Errors in what workers or peers wrote."`
	Offences              uint64 `json:"offences" unit:"errors" help:"Errors that are a worker's for certain."`
	Damages               uint64 `json:"damages" unit:"errors" help:"Errors in the memory of a domain that are nobody's for certain."`
	LaneFailures          uint64 `json:"lane_failures" unit:"failures" help:"Connections of lanes that broke."`
	Resynced              uint64 `json:"resynced" unit:"messages" help:"Requests that were asked about after a connection was made again."`
	Resent                uint64 `json:"resent" unit:"messages" help:"Requests sent again because they had not arrived."`
	RegionOps             uint64 `json:"region_ops" unit:"operations" help:"Operations of handlers on regions."`
	RegionOpsFailed       uint64 `json:"region_ops_failed" unit:"operations" help:"Operations on regions that failed."`
	RegionBytes           uint64 `json:"region_bytes" unit:"bytes" help:"Bytes moved by operations on regions."`
	RegionLinkFailures    uint64 `json:"region_link_failures" unit:"failures" help:"Connections for operations on regions that broke."`
	Wakes                 uint64 `json:"wakes" unit:"wakes" help:"Times that the agent woke a process up."`
	WritesPosted          uint64 `json:"writes_posted" unit:"writes" help:"Work requests of lanes that the fabric has taken."`
	WritesInline          uint64 `json:"writes_inline" unit:"writes" help:"Those of them that carried their bytes themselves, where the fabric has that."`
	WritesOutstanding     uint64 `json:"writes_outstanding" unit:"writes" kind:"gauge" help:"Work requests of lanes that the fabric has taken and has not said to be done."`
	Completions           uint64 `json:"completions" unit:"completions" help:"Completions taken from the completion queues."`
	CompletionDepth       uint64 `json:"completion_depth" unit:"completions" kind:"gauge" help:"Completions that the agent found in its queues in its last cycle."`
	ErrorLocalLength      uint64 `json:"completion_errors_local_length" unit:"completions" help:"Completions with the status local length error."`
	ErrorLocalProtection  uint64 `json:"completion_errors_local_protection" unit:"completions" help:"Completions with the status local protection error."`
	ErrorRemoteInvalid    uint64 `json:"completion_errors_remote_invalid" unit:"completions" help:"Completions with the status remote invalid request."`
	ErrorRemoteAccess     uint64 `json:"completion_errors_remote_access" unit:"completions" help:"Completions with the status remote access error."`
	ErrorRemoteOperation  uint64 `json:"completion_errors_remote_operation" unit:"completions" help:"Completions with the status remote operation error."`
	ErrorRetryExceeded    uint64 `json:"completion_errors_retry_exceeded" unit:"completions" help:"Completions with the status transport retry exceeded: the peer did not answer."`
	ErrorRNRExceeded      uint64 `json:"completion_errors_rnr_exceeded" unit:"completions" help:"Completions with the status receiver not ready: the peer had no receive posted for too long."`
	ErrorFlushed          uint64 `json:"completion_errors_flushed" unit:"completions" help:"Completions of work that the end of its connection has cut off."`
	ErrorFatal            uint64 `json:"completion_errors_fatal" unit:"completions" help:"Completions with any other status: the device or the connection broke."`
	AgentCycles           uint64 `json:"agent_cycles" unit:"cycles" help:"Turns of duty of the agent."`
	AgentSleeps           uint64 `json:"agent_sleeps" unit:"sleeps" help:"Times that the agent went to sleep."`
}

// LaneCounts is what is counted of a lane. Of an out lane and a local one it is about the
// requests of this node, of an in lane about those of the peer.
type LaneCounts struct {
	Requests     uint64 `json:"requests" unit:"messages" help:"Requests sent by the lane, or arrived by it."`
	Groups       uint64 `json:"groups" unit:"groups" help:"Groups that the requests came in."`
	Bytes        uint64 `json:"bytes" unit:"bytes" help:"Size of the writes of an out lane, and of the payloads of requests of others."`
	AnswerGroups uint64 `json:"answer_groups" unit:"groups" help:"Groups of answers that came back by the lane, or were sent back."`
	Answers      uint64 `json:"answers" unit:"messages" help:"Answers that came back by the lane, or were sent back."`
	Failures     uint64 `json:"failures" unit:"failures" help:"Times that the lane's connection broke."`
	Backpressure uint64 `json:"backpressure" unit:"events" help:"Times that the lane had something to send and no room on its connection."`
	Busy         uint64 `json:"busy" unit:"messages" kind:"gauge" help:"Requests under way."`
	BusySlots    uint64 `json:"busy_slots" unit:"slots" kind:"gauge" help:"Slots of the requests under way."`
}

// ServiceCounts is what is counted of a method that processes of this node serve.
type ServiceCounts struct {
	Requests uint64 `json:"requests" unit:"messages" help:"Requests for the method that have their answer."`
}

// NodeCounts is what the conductor counts. Unlike the rest it is written by several
// goroutines, with locked instructions, and not once per message.
type NodeCounts struct {
	RefusedConnections uint64 `json:"refused_connections" unit:"connections" help:"Connections of workers and of peers that were refused, or that ended because the other side broke the protocol."`
	StruckOut          uint64 `json:"struck_out" unit:"workers" help:"Workers disconnected for their offences (limits.strikes)."`
	Rotations          uint64 `json:"rotations" unit:"memories" help:"Domains that got new memory (limits.domain_strikes)."`
	WorkersAttached    uint64 `json:"workers_attached" unit:"workers" help:"Processes that have attached, those adopted from an earlier core not included."`
	WorkersDead        uint64 `json:"worker_dead" unit:"workers" help:"Workers whose processes died without a goodbye."`
	LinksMade          uint64 `json:"links_made" unit:"links" help:"Sessions with peers that were begun."`
	LinksLost          uint64 `json:"links_lost" unit:"links" help:"Sessions with peers that ended while the daemon was running."`
	Reconnects         uint64 `json:"reconnects" unit:"links" help:"Sessions with peers that followed one that was lost."`
	Workers            uint64 `json:"workers" unit:"workers" kind:"gauge" help:"Processes attached, tools included."`
	Peers              uint64 `json:"peers" unit:"peers" kind:"gauge" help:"Peers in the configuration."`
	PeersConnected     uint64 `json:"peers_connected" unit:"peers" kind:"gauge" help:"Peers with a session."`
	Draining           uint64 `json:"draining" unit:"bool" kind:"gauge" help:"1 while the daemon drains."`
	FabricFallback     uint64 `json:"fabric_fallback" unit:"bool" kind:"gauge" help:"1 if fabric.provider is auto and the RDMA device could not be used at start."`
	PinnedBytes        uint64 `json:"mr_registered_bytes" unit:"bytes" kind:"gauge" help:"Memory of rings that is registered with the fabric, or was while its lane was open."`
}

// Outcomes counts requests by how they ended: the element is the status of the answer.
type Outcomes [outcomes]uint64

// outcomes is how many there are room for; the last one is for all others.
const outcomes = 16

// outcomeNames are the labels of outcomes, by status of package slots.
var outcomeNames = [...]string{
	"ok", "remote_error", "no_service", "answer_too_large", "deadline", "not_executed", "maybe_executed", "invalid", "region_not_exported",
}

// Add counts an outcome. Any status will do.
func (o *Outcomes) Add(status uint32) { o[min(status, outcomes-1)]++ }

// OutcomeName returns the label of a status.
func OutcomeName(status int) string {
	if status < len(outcomeNames) {
		return outcomeNames[status]
	}
	return "other"
}

// Map returns the counts that are not zero by the label of their outcome.
func (o *Outcomes) Map() map[string]uint64 {
	m := map[string]uint64{}
	for i, n := range o {
		if n > 0 {
			m[OutcomeName(i)] += n
		}
	}
	return m
}

// Total returns the sum.
func (o *Outcomes) Total() (n uint64) {
	for _, k := range o {
		n += k
	}
	return n
}
